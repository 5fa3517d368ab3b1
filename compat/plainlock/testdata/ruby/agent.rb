# frozen_string_literal: true

# Takes locks as the gem redlock does for the test: one line of JSON in, one line of JSON out. The argument is the URL.
# The gem is not in Debian: the scripts, their arguments and the order of the calls are those of redlock 2.0.6
# (github.com/leandromoreira/redlock-rb, lib/redlock/scripts.rb and client.rb), sent with the gem redis.
require "redis"
require "json"
require "securerandom"

# Redlock has what the gem does on one server.
class Redlock
  UNLOCK_SCRIPT = <<-LUA
      if redis.call("get",KEYS[1]) == ARGV[1] then
        return redis.call("del",KEYS[1])
      else
        return 0
      end
  LUA

  LOCK_SCRIPT = <<-LUA
      if (redis.call("exists", KEYS[1]) == 0 and ARGV[3] == "yes") or redis.call("get", KEYS[1]) == ARGV[1] then
        return redis.call("set", KEYS[1], ARGV[1], "PX", ARGV[2])
      end
  LUA

  def initialize(redis)
    @redis = redis
  end

  # A majority of one server; what was not locked is unlocked, as the gem does.
  def lock(resource, ttl)
    value = SecureRandom.uuid
    began = now
    locked = @redis.eval(LOCK_SCRIPT, [resource], [value, ttl, "yes"])
    valid = ttl - (now - began) - ((ttl * 0.01).to_i + 2)
    return {resource: resource, value: value} if locked && valid >= 0

    @redis.eval(UNLOCK_SCRIPT, [resource], [value])
    nil
  end

  def unlock(lock)
    @redis.eval(UNLOCK_SCRIPT, [lock[:resource]], [lock[:value]]) == 1
  end

  private

  def now
    (Process.clock_gettime(Process::CLOCK_MONOTONIC) * 1000).to_i
  end
end

# Agent has a method for each question.
class Agent
  def initialize(url)
    @redis = Redis.new(url: url)
    @redlock = Redlock.new(@redis)
  end

  def acquire(q)
    @lock = @redlock.lock(q["key"], q["ttl"])
    {ok: !@lock.nil?}
  end

  def release(_)
    {ok: @redlock.unlock(@lock)}
  end

  # Enters and leaves the lock n times and counts how often somebody else was inside.
  def sections(q)
    overlaps = 0
    q["n"].times do
      sleep((5 + rand(5)) / 1000.0) until (lock = @redlock.lock(q["key"], 60_000))
      overlaps += 1 if @redis.incr("#{q["count"]}:inside") != 1
      @redis.incr(q["count"])
      @redis.decr("#{q["count"]}:inside")
      raise "not released" unless @redlock.unlock(lock)
    end
    {ok: true, overlaps: overlaps}
  end
end

agent = Agent.new(ARGV[0])
$stdout.sync = true
$stdin.each_line do |line|
  q = JSON.parse(line)
  reply = begin
    agent.public_send(q["op"], q)
  rescue => e # the test shows it
    {error: e.inspect}
  end
  puts JSON.generate(reply)
end
