<?php
// Takes locks with Laravel's cache for the test: one line of JSON in, one line of JSON out. The arguments are host and
// port of the server. The classes are those of Debian's php-illuminate-cache and php-illuminate-redis, with phpredis,
// and the prefixes those of a fresh Laravel application.
require_once 'Illuminate/Cache/autoload.php';
require_once 'Illuminate/Redis/autoload.php';

use Illuminate\Cache\RedisStore;
use Illuminate\Redis\Connectors\PhpRedisConnector;
use Illuminate\Redis\RedisManager;

class Agent
{
    private $store;
    private $raw;
    private $lock;

    public function __construct($host, $port)
    {
        // A manager finds its connector through an application; the connector alone needs none.
        $connection = (new PhpRedisConnector())->connect(
            ['host' => $host, 'port' => (int) $port, 'database' => 0], ['prefix' => 'laravel_database_']
        );
        $manager = new class($connection) extends RedisManager {
            private $only;

            public function __construct($only)
            {
                $this->only = $only;
            }

            public function connection($name = null)
            {
                return $this->only;
            }
        };
        $this->store = new RedisStore($manager, 'laravel_cache', 'cache');
        $this->raw = new Redis();
        $this->raw->connect($host, (int) $port);
    }

    // Laravel counts whole seconds.
    private function seconds($q)
    {
        return (int) ceil($q['ttl'] / 1000);
    }

    public function acquire($q)
    {
        $this->lock = $this->store->lock($q['key'], $this->seconds($q));
        return ['ok' => $this->lock->get()];
    }

    public function release($q)
    {
        return ['ok' => $this->lock->release()];
    }

    // Enters and leaves the lock n times and counts how often somebody else was inside.
    public function sections($q)
    {
        $overlaps = 0;
        for ($i = 0; $i < $q['n']; $i++) {
            $lock = $this->store->lock($q['key'], 60)->betweenBlockedAttemptsSleepFor(5);
            $lock->block(60);
            if ($this->raw->incr($q['count'] . ':inside') !== 1) {
                $overlaps++;
            }
            $this->raw->incr($q['count']);
            $this->raw->decr($q['count'] . ':inside');
            if (!$lock->release()) {
                throw new RuntimeException('not released');
            }
        }
        return ['ok' => true, 'overlaps' => $overlaps];
    }
}

$agent = new Agent($argv[1], $argv[2]);
while (($line = fgets(STDIN)) !== false) {
    $q = json_decode($line, true);
    try {
        $reply = $agent->{$q['op']}($q);
    } catch (Throwable $fault) { // the test shows it
        $reply = ['error' => get_class($fault) . ': ' . $fault->getMessage()];
    }
    echo json_encode($reply), "\n";
}
