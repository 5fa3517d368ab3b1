# frozen_string_literal: true

# Does with Sidekiq's own client and API what the test asks for: one line of JSON in,
# one line of JSON out. REDIS_URL names the server.
require "sidekiq"
require "sidekiq/api"
require "sidekiq/scheduled"
require "json"
require_relative "job"

# Agent has a method for each question.
class Agent
  SETS = {
    "schedule" => Sidekiq::ScheduledSet, "retry" => Sidekiq::RetrySet, "dead" => Sidekiq::DeadSet
  }.freeze

  def version(_)
    {sidekiq: Sidekiq::VERSION, ruby: RUBY_VERSION, json: JSON::VERSION}
  end

  def push(q)
    {jid: Sidekiq::Client.push(q["item"])}
  end

  def push_bulk(q)
    {jids: Sidekiq::Client.push_bulk(q["items"])}
  end

  def perform_in(q)
    {jids: q["args"].map { |args| InteropJob.perform_in(q["in"], *args) }}
  end

  def perform_async(q)
    {jids: q["args"].map { |args| InteropJob.set("queue" => q["queue"] || "default").perform_async(*args) }}
  end

  # The poller's own step, all that is due in both sets, until the set is empty.
  def drain(q)
    set = SETS.fetch(q["set"]).new
    rounds = 0
    while set.size > 0
      poller.enqueue_jobs
      rounds += 1
    end
    {rounds: rounds}
  end

  # The buttons of the Web UI.
  def reschedule(q)
    entry(q).reschedule(Time.at(q["at"]))
    {}
  end

  def delete(q)
    entry(q).delete
    {}
  end

  def retry(q)
    entry(q).retry
    {}
  end

  def add_to_queue(q)
    entry(q).add_to_queue
    {}
  end

  def kill(q)
    entry(q).kill
    {}
  end

  # What the Web UI shows of one job in a set.
  def show(q)
    e = entry(q)
    {at: e.at.to_f, queue: e.queue, class: e.display_class, args: e.display_args,
     error_message: e["error_message"], error_class: e["error_class"], retry_count: e["retry_count"],
     created_at: e.created_at.to_f, enqueued_at: e.enqueued_at&.to_f, failed_at: time(e["failed_at"])}
  end

  def queue(q)
    queue = Sidekiq::Queue.new(q["queue"])
    {size: queue.size, latency: queue.latency, jids: queue.map(&:jid)}
  end

  def stats(_)
    s = Sidekiq::Stats.new
    today = Sidekiq::Stats::History.new(1)
    {processed: s.processed, failed: s.failed, retries: s.retry_size, dead: s.dead_size, scheduled: s.scheduled_size,
     processed_today: today.processed.values.sum, failed_today: today.failed.values.sum}
  end

  def processes(_)
    {processes: Sidekiq::ProcessSet.new(false).map { |p| p.instance_variable_get(:@attribs) },
     work: Sidekiq::WorkSet.new.map { |id, _, work| [id, work_hash(work)] }}
  end

  # How many processes its poller takes for pollers: each polls so many times less often.
  def pollers(_)
    {count: Sidekiq::Scheduled::Poller.new(*config).send(:process_count)}
  end

  # A deploy's line: every process, in order, as its own page's buttons do.
  def signal(q)
    Sidekiq::ProcessSet.new(false).each { |p| p.public_send(q["signal"]) }
    {}
  end

  # What the Metrics page shows of the last hour.
  def metrics(_)
    require "sidekiq/metrics/query"
    {jobs: Sidekiq::Metrics::Query.new.top_jobs(minutes: 60).job_results.transform_values(&:totals)}
  end

  # The same of one class, with its histogram.
  def histogram(q)
    require "sidekiq/metrics/query"
    result = Sidekiq::Metrics::Query.new.for_job(q["class"], minutes: 60).job_results[q["class"]]
    {executions: result.hist.values.flatten.sum}
  end

  # Active Job's perform_later.
  def greet(q)
    require_relative "active"
    job = GreetJob.perform_later(User.new(q["user"]), q["text"], 2.0, Time.at(1_795_230_010.5),
                                 urgent: true, kind: :soon)
    {id: job.job_id, jid: job.provider_job_id}
  end

  # A schedule of sidekiq-cron, and what it has of it in Redis.
  def cron(q)
    require "sidekiq-cron"
    job = Sidekiq::Cron::Job.new(name: q["name"], cron: "* * * * *", class: "InteropJob", queue: "cron",
                                 args: [q["name"]])
    job.save or raise job.errors.inspect
    {}
  end

  # What sidekiq-cron's own poller does when a schedule is due.
  def cron_due(q)
    Sidekiq::Cron::Job.find(q["name"]).enque!(Time.now)
    {}
  end

  # Ruby's own form of what the test wrote.
  def canonical(q)
    {texts: q["texts"].map { |text| Sidekiq.dump_json(Sidekiq.load_json(text)) }}
  end

  private

  def entry(q)
    SETS.fetch(q["set"]).new.find_job(q["jid"]) or raise "no job #{q["jid"]} in #{q["set"]}"
  end

  # The argument that 7 and later ask for.
  def config
    Sidekiq.respond_to?(:default_configuration) ? [Sidekiq.default_configuration] : []
  end

  def poller
    @poller ||= Sidekiq::Scheduled.const_get(:Enq).new(*config)
  end

  def time(value)
    value.is_a?(Integer) ? value / 1000.0 : value
  end

  def work_hash(work)
    work.is_a?(Hash) ? work : {"queue" => work.queue, "payload" => work.payload}
  end
end

if Sidekiq.respond_to?(:default_configuration)
  Sidekiq.default_configuration.logger.level = Logger::WARN
else
  Sidekiq.logger.level = Logger::WARN
end
logger = Sidekiq.logger
logger.reopen($stderr)

agent = Agent.new
$stdout.sync = true
$stdin.each_line do |line|
  question = JSON.parse(line)
  reply =
    begin
      agent.public_send(question.fetch("op"), question)
    rescue StandardError => e
      {error: "#{e.class}: #{e.message}", at: e.backtrace.first(5)}
    end
  puts JSON.generate(reply)
end
