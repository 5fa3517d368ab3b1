package luacover

// Collect has a test program's calls collected: client before each call, flush after the last.
func Collect(channel string, take func(message string)) (client func(any), flush func()) {
	c := &collector{channel: channel, take: take, servers: map[string]*server{}, asked: map[string]bool{}}
	return c.client, c.flush
}
