# For each line of the input, a number of seconds: pushes batches of jobs of 300 bytes with Sidekiq::Client.push_bulk for
# that long, and prints jobs a second.
require "sidekiq"
Redis.sadd_returns_boolean = false if defined?(Redis) && Redis.respond_to?(:sadd_returns_boolean=) # no warnings
batch, queue = Integer(ENV.fetch("BATCH")), ENV.fetch("SPACE")
Sidekiq.configure_client { |c| c.redis = {url: ENV.fetch("REDIS_URL")} }
class BenchJob
  include(defined?(Sidekiq::Job) ? Sidekiq::Job : Sidekiq::Worker)
end
args = Array.new(batch) { ["x" * 180] }
$stdout.sync = true
$stdin.each_line do |line|
  span = Float(line)
  n, start = 0, Process.clock_gettime(Process::CLOCK_MONOTONIC)
  elapsed = 0.0
  while elapsed < span
    Sidekiq::Client.push_bulk("class" => BenchJob, "queue" => queue, "args" => args)
    n += batch
    elapsed = Process.clock_gettime(Process::CLOCK_MONOTONIC) - start
  end
  puts n / elapsed
end
