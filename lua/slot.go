package lua

import (
	"fmt"
	"strings"
)

// checkSlot refuses keys that a Redis Cluster does not accept in one script. Keys with one hash tag, the normal case,
// are only compared as text.
func checkSlot(keys []any) error {
	if len(keys) < 2 {
		return nil
	}
	first := keyText(keys[0])
	tag := hashTag(first)
	for _, k := range keys[1:] {
		other := keyText(k)
		if t := hashTag(other); t != tag && slot(t) != slot(tag) {
			return fmt.Errorf("%w: %q and %q; give them one {tag}", ErrCrossSlot, shownKey(first), shownKey(other))
		}
	}
	return nil
}

// keyText returns a key that Call.Key appended.
func keyText(key any) string {
	if p, ok := key.(*string); ok {
		return *p
	}
	return key.(string)
}

// hashTag returns the part of a key that Redis Cluster hashes: the text between the first { and the next }, or the
// whole key if that text is missing or empty.
func hashTag(key string) string {
	if open := strings.IndexByte(key, '{'); open >= 0 {
		if n := strings.IndexByte(key[open+1:], '}'); n > 0 {
			return key[open+1 : open+1+n]
		}
	}
	return key
}

// slot returns CRC16 (XMODEM: polynomial 0x1021, start 0) modulo 16384, from the Redis Cluster specification. It runs
// only when two tags differ, so it needs no table.
func slot(tag string) uint16 {
	var crc uint16
	for i := 0; i < len(tag); i++ {
		crc ^= uint16(tag[i]) << 8
		for range 8 {
			if crc&0x8000 != 0 {
				crc = crc<<1 ^ 0x1021
			} else {
				crc <<= 1
			}
		}
	}
	return crc % 16384
}
