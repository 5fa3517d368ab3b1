# frozen_string_literal: true

# A Rails application as far as jobs are concerned: Active Job on Sidekiq, a record with a GlobalID, and sidekiq-cron.
require "sidekiq"
require "active_job"
require "global_id"
require_relative "job"

GlobalID.app = "shop"

# User is a record; its table is not needed.
class User
  include GlobalID::Identification
  attr_reader :id

  def initialize(id)
    @id = id
  end

  def self.find(id)
    new(id)
  end
end

ActiveJob::Base.queue_adapter = :sidekiq
ActiveJob::Base.logger = Logger.new(nil)

# GreetJob notes what it was called with.
class GreetJob < ActiveJob::Base
  queue_as :mail

  def perform(user, text, factor, at, urgent: false, kind: nil)
    note = [user.class.name, user.id, text, factor, at.utc.iso8601(3), urgent, kind.inspect, job_id]
    Sidekiq.redis { |conn| conn.call("RPUSH", "greeted", JSON.generate(note)) }
  end
end
