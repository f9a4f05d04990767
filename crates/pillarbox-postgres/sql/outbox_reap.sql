-- Looks at one window of rows after id $1 and puts right what nobody else will: leases that ran out, messages that
-- expired, rows that are not due yet, and, if $6 says why, rows of keys that have an earlier dead one, also those whose time
-- has come on the shelf. The window is bounded by rows looked at, not by rows found, so that its cost does not depend on the
-- backlog. Rows that others work on are skipped. Where leases of stretches ran out it does nothing
-- but say so, unless $7: see outbox_lease_spread.sql.
WITH clock AS MATERIALIZED (SELECT clock_timestamp() AS now),
lapsed AS MATERIALIZED (
    SELECT NOT $7 AND EXISTS (SELECT FROM pillarbox.outbox_lease WHERE locked_until <= clock.now) AS are_stretches FROM clock
),
looked_at AS MATERIALIZED (
    SELECT count(*) AS rows, max(id) AS last
    FROM (
        SELECT id FROM pillarbox.outbox WHERE id > $1 AND NOT (SELECT are_stretches FROM lapsed) ORDER BY id LIMIT $2
    ) AS first_rows
),
found AS MATERIALIZED (
    SELECT
        live.id,
        live.owner_token IS NOT NULL AS was_leased,
        CASE
            WHEN live.expires_at <= clock.now THEN 'expired'
            WHEN live.owner_token IS NOT NULL AND live.lost_lease_count >= $3 THEN 'lost'
            WHEN is_parked THEN 'parked'
            WHEN live.owner_token IS NOT NULL THEN 'released'
            ELSE 'early'
        END AS fate
    FROM pillarbox.outbox AS live, clock
    CROSS JOIN LATERAL (
        SELECT $6::text IS NOT NULL AND live.message_key IS NOT NULL AND EXISTS (
            SELECT FROM pillarbox.outbox_shelf AS dead
            WHERE dead.message_key = live.message_key AND dead.id < live.id AND dead.state <> 'done' AND dead.state = 'dead')
    ) AS lane (is_parked)
    WHERE live.id > $1 AND live.id <= (SELECT last FROM looked_at)
      AND (live.owner_token IS NULL OR live.locked_until <= clock.now)
      AND (live.owner_token IS NOT NULL OR live.expires_at <= clock.now OR live.due_at > clock.now OR is_parked)
      AND NOT (live.owner_token IS NULL AND live.fence = 0 AND EXISTS (
        SELECT FROM pillarbox.outbox_lease AS lease
        WHERE lease.first_id <= live.id AND lease.first_id > live.id - 2048 AND lease.last_id >= live.id))
    ORDER BY live.id
    FOR UPDATE OF live SKIP LOCKED
),
released AS (
    UPDATE pillarbox.outbox AS live
    SET owner_token = NULL, locked_until = NULL, fence = -1, lost_lease_count = least(live.lost_lease_count, 2147483646) + 1
    FROM found
    WHERE live.id = found.id AND found.fate = 'released'
    RETURNING live.id
),
gone AS (
    DELETE FROM pillarbox.outbox AS live
    USING found
    WHERE live.id = found.id AND found.fate <> 'released'
    RETURNING live.*, found.fate, found.was_leased
),
shelved AS (
    INSERT INTO pillarbox.outbox_shelf (
        id, message_id, state, topic, message_type, created_at, attempts, lost_lease_count, priority, settled_at, due_at,
        wake_at, expires_at, occurred_at, aggregate_type, aggregate_id, tenant_id, message_key, key_hash, correlation_id,
        causation_id, content_type, headers, last_error, payload)
    SELECT
        id, message_id, CASE fate WHEN 'early' THEN 'pending' ELSE 'dead' END, topic, message_type, created_at, attempts,
        CASE WHEN was_leased THEN least(lost_lease_count, 2147483646) + 1 ELSE lost_lease_count END, priority,
        CASE WHEN fate <> 'early' THEN clock.now END, due_at,
        CASE fate WHEN 'early' THEN least(due_at, expires_at) END,
        expires_at, occurred_at, aggregate_type, aggregate_id, tenant_id, message_key, key_hash, correlation_id,
        causation_id, content_type, headers, CASE fate WHEN 'expired' THEN $4 WHEN 'lost' THEN $5 WHEN 'parked' THEN $6 ELSE last_error END, payload
    FROM gone, clock
    ON CONFLICT (message_id) WHERE state = 'pending' DO NOTHING
),
overslept AS (
    UPDATE pillarbox.outbox_shelf
    SET state = 'dead', settled_at = (SELECT now FROM clock), settled_by = NULL, wake_at = NULL, last_error = $4
    WHERE $1 = 0 AND NOT (SELECT are_stretches FROM lapsed)
      AND ctid = ANY (ARRAY(
        SELECT shelf.ctid FROM pillarbox.outbox_shelf AS shelf
        WHERE shelf.state = 'pending' AND shelf.wake_at <= (SELECT now FROM clock)
          AND shelf.expires_at <= (SELECT now FROM clock)
        ORDER BY shelf.wake_at, shelf.id
        LIMIT $2
        FOR UPDATE SKIP LOCKED))
    RETURNING id
),
parked AS (
    UPDATE pillarbox.outbox_shelf
    SET state = 'dead', settled_at = (SELECT now FROM clock), settled_by = NULL, wake_at = NULL, last_error = $6
    WHERE $1 = 0 AND $6 IS NOT NULL AND NOT (SELECT are_stretches FROM lapsed)
      AND ctid = ANY (ARRAY(
        SELECT shelf.ctid FROM pillarbox.outbox_shelf AS shelf
        WHERE shelf.state = 'pending' AND shelf.wake_at <= (SELECT now FROM clock)
          AND shelf.due_at <= (SELECT now FROM clock)
          AND (shelf.expires_at IS NULL OR shelf.expires_at > (SELECT now FROM clock))
          AND shelf.message_key IS NOT NULL AND EXISTS (
            SELECT FROM pillarbox.outbox_shelf AS dead
            WHERE dead.message_key = shelf.message_key AND dead.id < shelf.id AND dead.state <> 'done' AND dead.state = 'dead')
        ORDER BY shelf.wake_at, shelf.id
        LIMIT $2
        FOR UPDATE SKIP LOCKED))
    RETURNING id
)
SELECT
    (SELECT count(*) FROM released) AS released,
    (SELECT count(*) FROM gone WHERE fate = 'lost') AS lost,
    (SELECT count(*) FROM gone WHERE fate = 'expired') + (SELECT count(*) FROM overslept) AS expired,
    (SELECT min(id) FROM released) AS lowest,
    (SELECT last FROM looked_at WHERE rows = $2) AS next,
    (SELECT count(*) FROM gone WHERE fate = 'parked') + (SELECT count(*) FROM parked) AS parked,
    (SELECT are_stretches FROM lapsed)
