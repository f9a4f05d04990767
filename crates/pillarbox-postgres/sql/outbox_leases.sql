-- The age of the oldest message that could be claimed now, and how many leases run and ran out.
WITH clock AS MATERIALIZED (SELECT clock_timestamp() AS now)
SELECT
    (extract(epoch FROM clock.now - least(
        min(coalesce(live.due_at, live.created_at)) FILTER (
            WHERE live.owner_token IS NULL
              AND (live.due_at IS NULL OR live.due_at <= clock.now)
              AND (live.expires_at IS NULL OR live.expires_at > clock.now)),
        (SELECT min(shelf.due_at) FROM pillarbox.outbox_shelf AS shelf, clock AS tick
         WHERE shelf.state = 'pending' AND shelf.wake_at <= tick.now AND shelf.due_at <= tick.now
           AND (shelf.expires_at IS NULL OR shelf.expires_at > tick.now))
    )) * 1000000)::bigint AS oldest_age,
    count(*) FILTER (WHERE live.owner_token IS NOT NULL AND live.locked_until > clock.now) AS active,
    count(*) FILTER (WHERE live.owner_token IS NOT NULL AND live.locked_until <= clock.now) AS expired
FROM clock LEFT JOIN pillarbox.outbox_live AS live ON true
GROUP BY clock.now
