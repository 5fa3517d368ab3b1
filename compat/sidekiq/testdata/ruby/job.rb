# frozen_string_literal: true

# Old clients warn of what newer ones will do.
Redis.silence_deprecations = true if defined?(Redis) && Redis.respond_to?(:silence_deprecations=)

# The job of the interop tests. It notes each run in Redis, where the tests read them.
class InteropJob
  include Sidekiq::Job

  def perform(*args)
    Sidekiq.redis do |conn|
      conn.call("HSET", "performed:args", jid, Sidekiq.dump_json(args))
      conn.call("RPUSH", "performed", jid)
    end
    raise ArgumentError, args[1] if args[0] == "fail"
  end
end
