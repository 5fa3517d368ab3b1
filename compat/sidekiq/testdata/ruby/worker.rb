# frozen_string_literal: true

# A Sidekiq process, as its own command starts it. Arguments are those of `sidekiq`.
require "sidekiq"
require "sidekiq/cli"
require_relative "job"

Sidekiq.configure_server do |config|
  config.logger.level = Logger::WARN
  (config.respond_to?(:[]=) ? config : Sidekiq.options)[:average_scheduled_poll_interval] =
    ENV["POLL_INTERVAL"].to_s.empty? ? 1 : ENV["POLL_INTERVAL"].to_i
end

cli = Sidekiq::CLI.instance
cli.parse(["-r", File.join(__dir__, "job.rb"), *ARGV])
cli.run
