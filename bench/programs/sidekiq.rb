# Pushes batches of jobs of 300 bytes with Sidekiq::Client.push_bulk for SPAN seconds, and prints jobs a second.
require "sidekiq"
Redis.sadd_returns_boolean = false if defined?(Redis) && Redis.respond_to?(:sadd_returns_boolean=) # no warnings
batch, span, queue = Integer(ENV.fetch("BATCH")), Float(ENV.fetch("SPAN")), ENV.fetch("SPACE")
Sidekiq.configure_client { |c| c.redis = {url: ENV.fetch("REDIS_URL")} }
class BenchJob
  include(defined?(Sidekiq::Job) ? Sidekiq::Job : Sidekiq::Worker)
end
args = Array.new(batch) { ["x" * 180] }
push = -> { Sidekiq::Client.push_bulk("class" => BenchJob, "queue" => queue, "args" => args) }
push.call
n, start = 0, Process.clock_gettime(Process::CLOCK_MONOTONIC)
elapsed = 0.0
while elapsed < span
  push.call
  n += batch
  elapsed = Process.clock_gettime(Process::CLOCK_MONOTONIC) - start
end
puts n / elapsed
