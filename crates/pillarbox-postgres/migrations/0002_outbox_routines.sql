-- The statements of the hot path, as functions, and the same for every language that can call one.
-- A function has settings of its own: a plan that was made while a table was empty must not scan it for ever after. With
-- these settings the only plan is the one by index and row address, whatever the statistics say, and it is made once per
-- session, behind a pooler too. Nor is it compiled: the server takes a tenth of a large table for what a claim reads, and would
-- compile at each call, which takes longer than the claim.
-- The library calls each with the table it means ('pillarbox.outbox'); where a pooler has swapped prepared statements, that
-- is another one, the first argument arrives as NULL, and nothing is done.

-- Stores messages that are due at once, many in one statement. A column that no message of the batch uses comes as NULL,
-- which unnest pads. The only join that the settings leave keeps the order of the batch, and so does the sequence. A known
-- id is skipped: on the shelf by the anti-join, in the hot table by its unique index. Messages without lease and expiry,
-- which are most, have a statement of their own.
CREATE OR REPLACE FUNCTION pillarbox.outbox_store(
    uuid[], text[], bytea[], bigint[], timestamptz[], text[], text[], text[], text[], text[], text[], text[], text[],
    text[], timestamptz[], smallint[], bigint[], uuid, bigint, bigint)
RETURNS TABLE (work_id bigint, stored_id uuid, is_leased boolean) LANGUAGE plpgsql
    SET enable_seqscan = off
    SET enable_bitmapscan = off
    SET enable_sort = off
    SET enable_hashjoin = off
    SET enable_mergejoin = off
    SET plan_cache_mode = force_generic_plan
    SET jit = off
AS $$
DECLARE
    moment timestamptz := clock_timestamp();
BEGIN
    IF $1 IS NULL THEN
        RAISE EXCEPTION 'this call was meant for another outbox' USING ERRCODE = 'invalid_sql_statement_name';
    END IF;
    IF $18 IS NULL AND $4 IS NULL AND $5 IS NULL THEN
        RETURN QUERY
        INSERT INTO pillarbox.outbox (
            message_id, topic, payload, created_at, message_type, aggregate_type, aggregate_id, tenant_id, message_key,
            correlation_id, causation_id, content_type, headers, occurred_at, priority, key_hash)
        SELECT
            input.message_id, input.topic, input.payload, moment, input.message_type, input.aggregate_type,
            input.aggregate_id, input.tenant_id, input.message_key, input.correlation_id, input.causation_id,
            input.content_type, input.headers::jsonb, input.occurred_at, coalesce(input.priority, 0), input.key_hash
        FROM unnest($1, $2, $3, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17) AS input (
                message_id, topic, payload, message_type, aggregate_type, aggregate_id, tenant_id, message_key,
                correlation_id, causation_id, content_type, headers, occurred_at, priority, key_hash)
        WHERE NOT EXISTS (SELECT FROM pillarbox.outbox_shelf AS shelf WHERE shelf.message_id = input.message_id)
        ON CONFLICT (message_id) DO NOTHING
        RETURNING id, message_id, false;
        RETURN;
    END IF;
    RETURN QUERY
    INSERT INTO pillarbox.outbox (
        message_id, topic, payload, created_at, expires_at, owner_token, locked_until, fence, attempts,
        message_type, aggregate_type, aggregate_id, tenant_id, message_key, correlation_id, causation_id, content_type,
        headers, occurred_at, priority, key_hash)
    SELECT
        input.message_id, input.topic, input.payload, clock.now, due.expires_at,
        CASE WHEN due.leased THEN $18::uuid END,
        CASE WHEN due.leased THEN clock.now + $19::bigint * interval '1 microsecond' END,
        CASE WHEN due.leased THEN $20::bigint ELSE 0 END,
        CASE WHEN due.leased THEN 1 ELSE 0 END,
        input.message_type, input.aggregate_type, input.aggregate_id, input.tenant_id, input.message_key,
        input.correlation_id, input.causation_id, input.content_type, input.headers::jsonb, input.occurred_at,
        coalesce(input.priority, 0), input.key_hash
    FROM unnest(
            $1::uuid[], $2::text[], $3::bytea[], $4::bigint[], $5::timestamptz[], $6::text[], $7::text[], $8::text[],
            $9::text[], $10::text[], $11::text[], $12::text[], $13::text[], $14::text[], $15::timestamptz[], $16::smallint[],
            $17::bigint[]
        ) AS input (
            message_id, topic, payload, expires_after, expires_at, message_type, aggregate_type, aggregate_id,
            tenant_id, message_key, correlation_id, causation_id, content_type, headers, occurred_at, priority,
            key_hash)
    CROSS JOIN (SELECT moment AS now) AS clock
    CROSS JOIN LATERAL (
        SELECT expiry.expires_at, $18 IS NOT NULL AND (expiry.expires_at IS NULL OR expiry.expires_at > clock.now) AS leased
        FROM (
            SELECT coalesce(input.expires_at, clock.now + input.expires_after * interval '1 microsecond')
        ) AS expiry (expires_at)
    ) AS due
    WHERE NOT EXISTS (SELECT FROM pillarbox.outbox_shelf AS shelf WHERE shelf.message_id = input.message_id)
    ON CONFLICT (message_id) DO NOTHING
    RETURNING id, message_id, owner_token IS NOT NULL AS leased;
END $$;

-- Stores one message that is due at once: what most transactions do, so it goes without arrays, and answers with one number:
-- the new row's, below zero when it was born leased, nothing when the message is known. Same arguments otherwise.
-- One setting only, because it costs a tenth of the call: the shelf must never be scanned, whatever it held when this was
-- planned. A message that uses few columns, as most do, takes a short statement: unused ones cost as much again.
CREATE OR REPLACE FUNCTION pillarbox.outbox_store_one(
    uuid, text, bytea, bigint, timestamptz, text, text, text, text, text, text, text, text, text, timestamptz, smallint,
    bigint, uuid, bigint, bigint)
RETURNS bigint LANGUAGE plpgsql
    SET enable_seqscan = off
AS $$
DECLARE
    moment timestamptz;
    expiry timestamptz;
    leased boolean;
    stored bigint;
BEGIN
    IF $1 IS NULL THEN
        RAISE EXCEPTION 'this call was meant for another outbox' USING ERRCODE = 'invalid_sql_statement_name';
    END IF;
    IF num_nonnulls($4, $5, $6, $7, $8, $9, $10, $11, $12, $14, $15, $16) = 0 THEN
        IF $18 IS NULL THEN
            INSERT INTO pillarbox.outbox (message_id, topic, payload, content_type)
            SELECT $1, $2, $3, $13
            WHERE NOT EXISTS (SELECT FROM pillarbox.outbox_shelf AS shelf WHERE shelf.message_id = $1)
            ON CONFLICT (message_id) DO NOTHING
            RETURNING id INTO stored;
        ELSE
            INSERT INTO pillarbox.outbox (
                message_id, topic, payload, content_type, owner_token, locked_until, fence, attempts)
            SELECT $1, $2, $3, $13, $18, clock_timestamp() + $19 * interval '1 microsecond', $20, 1
            WHERE NOT EXISTS (SELECT FROM pillarbox.outbox_shelf AS shelf WHERE shelf.message_id = $1)
            ON CONFLICT (message_id) DO NOTHING
            RETURNING -id INTO stored;
        END IF;
        RETURN stored;
    END IF;
    moment := clock_timestamp();
    expiry := coalesce($5, moment + $4 * interval '1 microsecond');
    leased := $18 IS NOT NULL AND (expiry IS NULL OR expiry > moment);
    INSERT INTO pillarbox.outbox (
        message_id, topic, payload, created_at, expires_at, owner_token, locked_until, fence, attempts, message_type,
        aggregate_type, aggregate_id, tenant_id, message_key, correlation_id, causation_id, content_type, headers,
        occurred_at, priority, key_hash)
    SELECT
        $1, $2, $3, moment, expiry, CASE WHEN leased THEN $18 END,
        CASE WHEN leased THEN moment + $19 * interval '1 microsecond' END, CASE WHEN leased THEN $20 ELSE 0 END,
        CASE WHEN leased THEN 1 ELSE 0 END, $6, $7, $8, $9, $10, $11, $12, $13, $14::jsonb, $15, coalesce($16, 0), $17
    WHERE NOT EXISTS (SELECT FROM pillarbox.outbox_shelf AS shelf WHERE shelf.message_id = $1)
    ON CONFLICT (message_id) DO NOTHING
    RETURNING CASE WHEN leased THEN -id ELSE id END INTO stored;
    RETURN stored;
END $$;

-- Stores a batch of which some messages may have to wait: these go to the shelf, the others to the hot table. The
-- database's clock decides which. Ids are drawn before the rows part, so that they follow the order of the batch.
CREATE OR REPLACE FUNCTION pillarbox.outbox_store_delayed(
    uuid[], text[], bytea[], bigint[], timestamptz[], text[], text[], text[], text[], text[], text[], text[], text[],
    text[], timestamptz[], smallint[], bigint[], uuid, bigint, bigint,
    bigint[], timestamptz[])
RETURNS TABLE (work_id bigint, stored_id uuid, is_leased boolean) LANGUAGE plpgsql
    SET enable_seqscan = off
    SET enable_bitmapscan = off
    SET enable_sort = off
    SET enable_hashjoin = off
    SET enable_mergejoin = off
    SET plan_cache_mode = force_generic_plan
    SET jit = off
AS $$
BEGIN
    IF $1 IS NULL THEN
        RAISE EXCEPTION 'this call was meant for another outbox' USING ERRCODE = 'invalid_sql_statement_name';
    END IF;
    RETURN QUERY
    WITH clock AS MATERIALIZED (SELECT clock_timestamp() AS now),
    input AS MATERIALIZED (
        SELECT nextval('pillarbox.outbox_id') AS id, ordered.*
        FROM (
            SELECT
                raw.*,
                clock.now,
                coalesce(raw.due_instant, clock.now + raw.due_after * interval '1 microsecond') AS due_at,
                coalesce(raw.expires_instant, clock.now + raw.expires_after * interval '1 microsecond') AS expires_at
            FROM clock, unnest(
                    $1::uuid[], $2::text[], $3::bytea[], $4::bigint[], $5::timestamptz[], $6::text[], $7::text[],
                    $8::text[], $9::text[], $10::text[], $11::text[], $12::text[], $13::text[], $14::text[],
                    $15::timestamptz[], $16::smallint[], $17::bigint[], $21::bigint[], $22::timestamptz[]
                ) WITH ORDINALITY AS raw (
                    message_id, topic, payload, expires_after, expires_instant, message_type, aggregate_type, aggregate_id,
                    tenant_id, message_key, correlation_id, causation_id, content_type, headers, occurred_at, priority,
                    key_hash, due_after, due_instant, place)
            WHERE NOT EXISTS (SELECT FROM pillarbox.outbox_shelf AS shelf WHERE shelf.message_id = raw.message_id)
              AND NOT EXISTS (SELECT FROM pillarbox.outbox AS live WHERE live.message_id = raw.message_id)
            ORDER BY raw.place
        ) AS ordered
    ),
    ready AS (
        INSERT INTO pillarbox.outbox (
            id, message_id, topic, payload, created_at, due_at, expires_at, owner_token, locked_until, fence, attempts,
            message_type, aggregate_type, aggregate_id, tenant_id, message_key, correlation_id, causation_id, content_type,
            headers, occurred_at, priority, key_hash)
        SELECT
            id, message_id, topic, payload, now, due_at, expires_at,
            CASE WHEN leased THEN $18::uuid END,
            CASE WHEN leased THEN now + $19::bigint * interval '1 microsecond' END,
            CASE WHEN leased THEN $20::bigint ELSE 0 END,
            CASE WHEN leased THEN 1 ELSE 0 END,
            message_type, aggregate_type, aggregate_id, tenant_id, message_key, correlation_id, causation_id, content_type,
            headers::jsonb, occurred_at, coalesce(priority, 0), key_hash
        FROM input
        CROSS JOIN LATERAL (
            SELECT $18 IS NOT NULL AND (input.expires_at IS NULL OR input.expires_at > input.now)
        ) AS born (leased)
        WHERE input.due_at IS NULL OR input.due_at <= input.now
        ON CONFLICT (message_id) DO NOTHING
        RETURNING id, message_id, owner_token IS NOT NULL AS leased
    ),
    waiting AS (
        INSERT INTO pillarbox.outbox_shelf (
            id, message_id, state, topic, payload, created_at, due_at, expires_at, wake_at,
            message_type, aggregate_type, aggregate_id, tenant_id, message_key, correlation_id, causation_id, content_type,
            headers, occurred_at, priority, key_hash)
        SELECT
            id, message_id, 'pending', topic, payload, now, due_at, expires_at, least(due_at, expires_at),
            message_type, aggregate_type, aggregate_id, tenant_id, message_key, correlation_id, causation_id, content_type,
            headers::jsonb, occurred_at, coalesce(priority, 0), key_hash
        FROM input
        WHERE due_at > now
        ON CONFLICT (message_id) WHERE state = 'pending' DO NOTHING
        RETURNING id, message_id, false AS leased
    )
    SELECT id, message_id, leased FROM ready UNION ALL SELECT id, message_id, leased FROM waiting;
END $$;

-- Moves messages that waited, at the addresses $1 and locked by the caller, over from the shelf, for owner $2 with fence $3 for
-- $4 microseconds from $5 on. Called by claims, under their settings.
CREATE OR REPLACE FUNCTION pillarbox.outbox_wake(tid[], uuid, bigint, bigint, timestamptz)
RETURNS SETOF pillarbox.outbox LANGUAGE plpgsql AS $$
BEGIN
    RETURN QUERY
    WITH woken AS (
        DELETE FROM pillarbox.outbox_shelf WHERE ctid = ANY ($1) RETURNING *
    )
    INSERT INTO pillarbox.outbox (
        id, message_id, topic, payload, created_at, attempts, lost_lease_count, priority, due_at, expires_at,
        occurred_at, message_type, aggregate_type, aggregate_id, tenant_id, message_key, key_hash,
        correlation_id, causation_id, content_type, headers, last_error, owner_token, fence, locked_until)
    SELECT
        id, message_id, topic, payload, created_at, least(attempts, 2147483646) + 1, lost_lease_count, priority,
        due_at, expires_at, occurred_at, message_type, aggregate_type, aggregate_id, tenant_id, message_key, key_hash,
        correlation_id, causation_id, content_type, headers, last_error, $2, $3,
        $5 + $4 * interval '1 microsecond'
    FROM woken
    ON CONFLICT (message_id) DO NOTHING
    RETURNING *;
END $$;

-- Lifts the mark to $1, if it is lower, and answers it. A claim locks its rows, lifts the mark to the last of them that has a
-- key, and then looks for others up to there. So of two claims that meet at a key either the one with the later row has lifted the
-- mark before the other one reads it, and is found; or that one had locked its earlier row before, and is found by the first.
CREATE OR REPLACE FUNCTION pillarbox.outbox_mark(bigint) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    mark bigint := coalesce(pg_sequence_last_value('pillarbox.outbox_claimed'), 0);
BEGIN
    -- So far behind only where keys come late to an outbox. Everybody is, so nobody lifts it otherwise meanwhile.
    IF mark < $1 - 20000000 THEN
        PERFORM pg_advisory_xact_lock(hashtextextended('pillarbox.outbox mark', 0));
        mark := coalesce(pg_sequence_last_value('pillarbox.outbox_claimed'), 0);
        IF mark < $1 - 20000000 THEN
            mark := setval('pillarbox.outbox_claimed', $1);
        END IF;
    END IF;
    WHILE mark < $1 LOOP
        mark := nextval('pillarbox.outbox_claimed');
    END LOOP;
    RETURN mark;
END $$;

-- Which of the keys $1 somebody else has a message of. The claim has locked the rows at $3 in the hot table, those of each key
-- up to $2, and at $4 on the shelf, and looks at the moment $5; it calls this afterwards, in a snapshot that shows what others
-- were faster with.
-- A later message can be held when an earlier one was committed late, was given back or was replayed: up to the mark $6 all
-- are looked at, or up to the first that is clear (its fence is -2, see outbox_runs). A row that an open claim has taken still
-- looks free: all that shows is a locker, who may have ended, so such a row is locked to find out.
CREATE OR REPLACE FUNCTION pillarbox.outbox_held(text[], bigint[], tid[], tid[], timestamptz, bigint) RETURNS text[]
LANGUAGE plpgsql AS $$
BEGIN
    RETURN ARRAY(
        SELECT lane.key
        FROM unnest($1, $2) AS lane (key, last)
        CROSS JOIN LATERAL (
            SELECT coalesce((
                SELECT clear.id FROM pillarbox.outbox AS clear
                WHERE clear.message_key = lane.key AND clear.id <= greatest(lane.last, $6) AND clear.fence = -2
                ORDER BY clear.id LIMIT 1), greatest(lane.last, $6))
        ) AS look (reach)
        WHERE EXISTS (
                SELECT FROM pillarbox.outbox AS live
                WHERE live.message_key = lane.key AND live.id <= look.reach
                  AND (live.locked_until > $5 OR live.xmax <> '0'::xid)
                  AND (live.id > lane.last OR live.ctid <> ALL ($3))
                  AND (live.locked_until > $5 OR NOT EXISTS (
                    SELECT FROM pillarbox.outbox AS free
                    WHERE free.id = live.id AND (free.locked_until IS NULL OR free.locked_until <= $5)
                    FOR NO KEY UPDATE SKIP LOCKED)))
           OR EXISTS (
                SELECT FROM pillarbox.outbox_shelf AS shelf
                WHERE shelf.message_key = lane.key AND shelf.state <> 'done' AND shelf.state = 'pending'
                  AND shelf.xmax <> '0'::xid AND shelf.ctid <> ALL ($4)
                  AND NOT EXISTS (
                    SELECT FROM pillarbox.outbox_shelf AS free WHERE free.id = shelf.id FOR UPDATE SKIP LOCKED)));
END $$;

-- Which of the rows at $1, locked by the caller, may go, and the keys of the others; NULL if there are none. $2 is the mark, $3 the
-- moment, $4 whether a dead message holds back later ones.
-- Whether the shelf has anything that could stand in the way of a key is asked once for all keys.
-- Where others have gone past a long backlog of one key, all of it lies below the mark. It is looked through once: the row that
-- comes next is noted as clear. While it stands there nobody takes a later one, so looks end at it; whoever claims it, ends that.
CREATE OR REPLACE FUNCTION pillarbox.outbox_runs(
    tid[], bigint, timestamptz, boolean, OUT free tid[], OUT torn text[]) LANGUAGE plpgsql
AS $$
DECLARE
    lasts bigint[];
    deep boolean[];
    stops bigint[];
    held text[];
BEGIN
    free := $1;
    SELECT array_agg(run.key), array_agg(run.last), array_agg(look.is_deep) INTO torn, lasts, deep
    FROM (
        SELECT lane.message_key AS key, count(*) AS taken_count, max(lane.id) AS last
        FROM pillarbox.outbox AS lane
        WHERE lane.ctid = ANY ($1) AND lane.message_key IS NOT NULL
        GROUP BY lane.message_key) AS run
    CROSS JOIN LATERAL (
        SELECT count(*) > run.taken_count + 64, count(*) FILTER (WHERE near.id <= run.last) <> run.taken_count
            OR coalesce(bool_or(near.id > run.last AND (near.locked_until > $3 OR near.locker <> '0'::xid)), false)
        FROM (
            SELECT lane.id, lane.locked_until, lane.xmax AS locker FROM pillarbox.outbox AS lane
            WHERE lane.message_key = run.key AND lane.id <= greatest(run.last, $2)
            ORDER BY lane.id LIMIT run.taken_count + 65) AS near
    ) AS look (is_deep, is_torn)
    WHERE look.is_deep OR look.is_torn
       OR (SELECT EXISTS (
            SELECT FROM pillarbox.outbox_shelf AS any_key
            WHERE any_key.message_key IS NOT NULL AND any_key.state <> 'done'))
      AND EXISTS (
            SELECT FROM pillarbox.outbox_shelf AS earlier
            WHERE earlier.message_key = run.key AND earlier.state <> 'done'
              AND (earlier.state = 'pending' AND earlier.xmax <> '0'::xid
                OR earlier.id < run.last
                  AND CASE earlier.state WHEN 'dead' THEN $4 ELSE earlier.settled_by IS NOT NULL END));
    IF torn IS NULL THEN
        RETURN;
    END IF;
    held := pillarbox.outbox_held(torn, lasts, $1, '{}', $3, $2);
    IF true = ANY (deep) THEN
        UPDATE pillarbox.outbox SET fence = -2
        WHERE ctid = ANY (ARRAY(
            SELECT next.tid
            FROM unnest(torn, lasts, deep) AS run (key, last, is_deep)
            CROSS JOIN LATERAL (
                SELECT next.ctid AS tid, next.fence FROM pillarbox.outbox AS next
                WHERE next.message_key = run.key AND next.id > run.last AND next.owner_token IS NULL
                ORDER BY next.id LIMIT 1
                FOR NO KEY UPDATE SKIP LOCKED) AS next
            -- A lease that ran out can still be renewed.
            WHERE run.is_deep AND run.key <> ALL (held) AND next.fence <> -2
              AND NOT EXISTS (
                SELECT FROM pillarbox.outbox AS lapsed
                WHERE lapsed.message_key = run.key AND lapsed.id > run.last AND lapsed.id <= $2
                  AND lapsed.owner_token IS NOT NULL)));
    END IF;
    SELECT array_agg(run.key), array_agg(run.stop) INTO torn, stops
    FROM (
        SELECT run.key, CASE WHEN run.key = ANY (held) THEN 0 ELSE least(
            (SELECT lane.id FROM pillarbox.outbox AS lane
             WHERE lane.message_key = run.key AND lane.id <= run.last AND lane.ctid <> ALL ($1)
             ORDER BY lane.id LIMIT 1),
            (SELECT earlier.id FROM pillarbox.outbox_shelf AS earlier
             WHERE earlier.message_key = run.key AND earlier.id < run.last AND earlier.state <> 'done'
               AND CASE earlier.state WHEN 'dead' THEN $4 ELSE earlier.settled_by IS NOT NULL END
             ORDER BY earlier.id LIMIT 1)) END AS stop
        FROM unnest(torn, lasts) AS run (key, last)) AS run
    WHERE run.stop IS NOT NULL;
    IF torn IS NOT NULL THEN
        free := ARRAY(
            SELECT mine.ctid FROM pillarbox.outbox AS mine
            WHERE mine.ctid = ANY ($1)
              AND NOT EXISTS (
                SELECT FROM unnest(torn, stops) AS run (key, stop) WHERE run.key = mine.message_key AND run.stop < mine.id));
    END IF;
END $$;

-- Makes leases of stretches that ran out by $1 into leases of their rows, the lowest $2 of them. From then on they are like any other
-- lease that ran out. A row that somebody has locked is left as it is: nobody holds it any more, and its attempt is not counted.
CREATE OR REPLACE FUNCTION pillarbox.outbox_spread(timestamptz, bigint) RETURNS void LANGUAGE plpgsql
    SET enable_seqscan = off
    SET enable_bitmapscan = off
    SET enable_sort = off
    SET enable_hashjoin = off
    SET enable_mergejoin = off
    SET plan_cache_mode = force_generic_plan
    SET jit = off
AS $$
DECLARE
    lease record;
BEGIN
    FOR lease IN
        SELECT * FROM pillarbox.outbox_lease
        WHERE first_id > -9223372036854775808 AND locked_until <= $1 ORDER BY first_id LIMIT $2 FOR UPDATE SKIP LOCKED
    LOOP
        UPDATE pillarbox.outbox AS live
        SET owner_token = lease.owner_token, fence = lease.fence, locked_until = lease.locked_until,
            attempts = least(live.attempts, 2147483646) + 1
        WHERE live.ctid = ANY (ARRAY(
            SELECT covered.ctid FROM pillarbox.outbox AS covered
            WHERE covered.id BETWEEN lease.first_id AND lease.last_id
              AND covered.owner_token IS NULL AND covered.fence = 0
            ORDER BY covered.id
            FOR NO KEY UPDATE SKIP LOCKED));
        DELETE FROM pillarbox.outbox_lease WHERE first_id = lease.first_id;
    END LOOP;
END $$;

-- Gives rows $1, claimed with fences $2 by owner $3, leases of their own, as far as these are leases of stretches. The others of
-- a stretch stay leased by it. No lease is written or waited for unless it has no rows left.
CREATE OR REPLACE FUNCTION pillarbox.outbox_peel(bigint[], bigint[], uuid) RETURNS void LANGUAGE plpgsql
    SET enable_seqscan = off
    SET enable_bitmapscan = off
    SET enable_sort = off
    SET enable_hashjoin = off
    SET enable_mergejoin = off
    SET plan_cache_mode = force_generic_plan
    SET jit = off
AS $$
BEGIN
    IF NOT EXISTS (SELECT FROM pillarbox.outbox_lease WHERE fence = ANY ($2) AND owner_token = $3) THEN
        RETURN;
    END IF;
    UPDATE pillarbox.outbox AS live
    SET owner_token = $3, fence = lease.fence, locked_until = lease.locked_until,
        attempts = least(live.attempts, 2147483646) + 1
    FROM unnest($1, $2) AS held (id, fence)
    JOIN pillarbox.outbox_lease AS lease
      ON lease.fence = held.fence AND lease.owner_token = $3 AND held.id BETWEEN lease.first_id AND lease.last_id
    WHERE live.id = held.id AND live.owner_token IS NULL AND live.fence = 0;
    DELETE FROM pillarbox.outbox_lease
    WHERE ctid = ANY (ARRAY(
        SELECT lease.ctid FROM pillarbox.outbox_lease AS lease
        WHERE lease.fence = ANY ($2) AND lease.owner_token = $3
          AND NOT EXISTS (
            SELECT FROM pillarbox.outbox AS covered
            WHERE covered.id BETWEEN lease.first_id AND lease.last_id AND covered.owner_token IS NULL AND covered.fence = 0)
        FOR UPDATE SKIP LOCKED));
END $$;

-- Notes that free rows may come to stand within leases of stretches: those given back, $1, whose verdicts are $2.
CREATE OR REPLACE FUNCTION pillarbox.outbox_tear(bigint[], smallint[]) RETURNS void LANGUAGE plpgsql
    SET enable_seqscan = off
    SET enable_bitmapscan = off
    SET enable_sort = off
    SET enable_hashjoin = off
    SET enable_mergejoin = off
    SET plan_cache_mode = force_generic_plan
    SET jit = off
AS $$
BEGIN
    UPDATE pillarbox.outbox_lease AS lease SET is_torn = true
    FROM unnest($1, $2) AS back (id, code)
    WHERE back.code >= 2 AND lease.first_id <= back.id AND lease.first_id > back.id - 2048 AND lease.last_id >= back.id
      AND NOT lease.is_torn;
END $$;

-- Whether any row is leased with its stretch. A lease may be left without rows, where its last ones were settled by several calls at once.
CREATE OR REPLACE FUNCTION pillarbox.outbox_has_stretches() RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    RETURN EXISTS (
        SELECT FROM pillarbox.outbox_lease AS lease
        JOIN pillarbox.outbox AS covered ON covered.id BETWEEN lease.first_id AND lease.last_id
        WHERE lease.first_id > -9223372036854775808 AND covered.owner_token IS NULL AND covered.fence = 0);
END $$;

-- What lies between the leases of stretches above row $1, that are whole: above which rows, and below which; and the others, whose rows
-- have to be looked at.
CREATE OR REPLACE FUNCTION pillarbox.outbox_gaps(
    bigint, OUT lows bigint[], OUT highs bigint[], OUT torn int8range[]) LANGUAGE plpgsql
AS $$
BEGIN
    SELECT
        array_agg(greatest(last_id, $1) ORDER BY first_id) FILTER (WHERE NOT is_torn),
        array_agg(first_id ORDER BY first_id) FILTER (WHERE NOT is_torn),
        array_agg(int8range(first_id, last_id, '[]')) FILTER (WHERE is_torn)
    INTO lows, highs, torn
    FROM pillarbox.outbox_lease WHERE first_id > $1 - 2048;
    lows := $1 || lows;
    highs := highs || 9223372036854775807;
END $$;

-- What the next $2 rows above $1, leases of whole stretches left out, are at the moment $3: 1 where a stretch may take one in, 2 where
-- it can be claimed by itself only, 0 where nobody may claim it now.
CREATE OR REPLACE FUNCTION pillarbox.outbox_kinds(bigint, bigint, timestamptz)
RETURNS TABLE (id bigint, kind integer) LANGUAGE plpgsql AS $$
DECLARE
    lows bigint[];
    highs bigint[];
    torn int8range[];
BEGIN
    SELECT * INTO lows, highs, torn FROM pillarbox.outbox_gaps($1);
    RETURN QUERY
    SELECT found.id, found.kind
    FROM unnest(lows, highs) AS gap (above, below)
    CROSS JOIN LATERAL (
        SELECT live.id,
            CASE
                WHEN live.locked_until > $3 AND live.owner_token IS NOT NULL THEN 0
                WHEN live.due_at > $3 OR live.expires_at <= $3 THEN 0
                WHEN live.owner_token IS NOT NULL OR live.fence <> 0 OR live.message_key IS NOT NULL THEN 2
                WHEN torn IS NOT NULL AND live.id <@ ANY (torn) THEN 0
                WHEN live.xmax <> '0'::xid THEN 2
                ELSE 1
            END AS kind
        FROM pillarbox.outbox AS live
        WHERE live.id > gap.above AND live.id < gap.below
        ORDER BY live.id
        LIMIT $2) AS found
    LIMIT $2;
END $$;

-- Leases stretches for owner $1 with fence $2 until $3: up to $4 rows above $5 that have never been leased by themselves and have no
-- key, from the lowest on, as far as no other one that could be claimed comes before them; the moment is $6. Fewer than $7
-- are left, and those that lie scattered: there is nothing to win.
-- Answers the stretches, and whether there may be more to claim that cannot be leased so. One without rows says that others were faster:
-- the caller looks again, for rows, without the lock.
--
-- Claims of this kind come one at a time, and hold the lock for this short transaction only, which must be a single statement, so that
-- no client can keep it open: the messages are read afterwards, see outbox_claim_stretch.sql. Claims of rows go on meanwhile. They lock rows first, and then look for leases of stretches; here it is
-- the other way round, because messages are read after the commit, and rows that are locked are left. So at least one of two that
-- meet sees the other, and leaves what both wanted.
CREATE OR REPLACE FUNCTION pillarbox.outbox_take(uuid, bigint, timestamptz, bigint, bigint, timestamptz, integer)
RETURNS TABLE (first bigint, row_count integer, has_rest boolean) LANGUAGE plpgsql AS $$
DECLARE
    lows bigint[];
    highs bigint[];
    torn int8range[];
    low bigint;
    high bigint;
    stop bigint;
    seen_count bigint;
    plain_count bigint;
    piece_count bigint := 1;
    firsts bigint[];
    lasts bigint[];
BEGIN
    IF (SELECT count(*) FILTER (WHERE row.kind = 1) FROM pillarbox.outbox_kinds($5, 16, $6) AS row) < least($7, 16) THEN
        RETURN;
    END IF;
    -- Nothing but leases is written here: should the server lose them, their messages are claimed once more. What was settled in the same
    -- transaction must last.
    IF txid_current_if_assigned() IS NULL THEN
        PERFORM set_config('synchronous_commit', 'off', true);
    END IF;
    PERFORM pg_advisory_xact_lock(hashtextextended('pillarbox.outbox stretches', 0));
    -- In a backlog all that comes next are such rows, beside each other.
    SELECT * INTO lows, highs, torn FROM pillarbox.outbox_gaps($5);
    IF torn IS NULL AND lows[cardinality(lows)] = $5 THEN
        SELECT count(*), count(*) FILTER (WHERE next.is_plain), min(next.id), max(next.id)
        INTO seen_count, plain_count, low, high
        FROM (
            SELECT live.id,
                live.owner_token IS NULL AND live.fence = 0 AND live.message_key IS NULL AND live.xmax = '0'::xid
                    AND (live.due_at IS NULL OR live.due_at <= $6) AND (live.expires_at IS NULL OR live.expires_at > $6) AS is_plain
            FROM pillarbox.outbox AS live
            WHERE live.id > $5 AND live.id < 9223372036854775807
            ORDER BY live.id
            LIMIT $4) AS next;
        firsts := ARRAY[low];
        lasts := ARRAY[high];
    END IF;
    IF plain_count IS NULL OR plain_count < seen_count OR high - low >= seen_count THEN
        SELECT count(*), min(row.id) FILTER (WHERE row.kind = 2) INTO seen_count, stop
        FROM pillarbox.outbox_kinds($5, $4, $6) AS row;
        SELECT array_agg(island.low), array_agg(island.high), count(*), sum(island.high - island.low + 1)
        INTO firsts, lasts, piece_count, plain_count
        FROM (
            SELECT min(numbered.id) AS low, max(numbered.id) AS high
            FROM (
                SELECT row.id, row.id - row_number() OVER (ORDER BY row.id) AS island
                FROM pillarbox.outbox_kinds($5, $4, $6) AS row
                WHERE row.kind = 1 AND (stop IS NULL OR row.id < stop)
            ) AS numbered
            GROUP BY numbered.island
        ) AS island;
    END IF;
    IF coalesce(plain_count, 0) < $7 OR plain_count < piece_count * least($7, 8) THEN
        RETURN QUERY SELECT 0::bigint, 0, true;
        RETURN;
    END IF;
    RETURN QUERY
    WITH leased AS (
        INSERT INTO pillarbox.outbox_lease (first_id, last_id, fence, owner_token, locked_until)
        SELECT piece.first, least(piece.first + 499, island.high), $2, $1, $3
        FROM unnest(firsts, lasts) AS island (low, high)
        CROSS JOIN LATERAL generate_series(island.low, island.high, 500) AS piece (first)
        RETURNING first_id, last_id
    )
    SELECT leased.first_id, (leased.last_id - leased.first_id + 1)::integer,
        stop IS NOT NULL OR (seen_count = $4 AND plain_count < $4)
    FROM leased;
END $$;

-- Claims up to $4 messages for owner $1 with fence $2 for $3 microseconds: waiting ones whose time has come, moved over
-- from the shelf, then the lowest ready ones above the floor $5. The rows are addressed by ctid = ANY(ARRAY(...)): the
-- limit holds and the update stays HOT. Leases that ran out count as lost, up to $6 of them; more is left to the reaper.
-- The rows come in no certain order.
-- $7 is the order: 1 when a dead message holds back later ones of its key, 2 for a sequence, in which all have one key.
-- $8 has a byte for each partition, 1 where it is served; of messages with a key only those of served ones are taken, or
-- all when it is NULL. A key without a hash is partition 0's.
-- $9 are topics that stay where they are, and with them what comes behind in their keys; NULL for none. Those that waited are
-- moved over all the same: on the shelf nothing would keep a claim from walking over them each time.
-- $10 allows leases of stretches, from that many rows on; NULL does not. Then what comes back may be stretches and not messages: rows
-- without a topic, whose ids are first rows and whose attempts say how many, see outbox_take. Their messages are read by
-- outbox_claim_stretch.sql.
--
-- A message with a key goes out when all before it in its key go too, no later one is held, and the shelf has no earlier one
-- that waits or is dead. Rows are locked first and looked at then, key by key, in a snapshot of its own: what another claim was
-- faster with is seen there. Keys of which something must stay behind are left out of the scan when it goes on, which it does a
-- few times.
CREATE OR REPLACE FUNCTION pillarbox.outbox_claim(
    uuid, bigint, bigint, bigint, bigint, integer, integer, bytea, text[], integer)
RETURNS SETOF pillarbox.outbox LANGUAGE plpgsql
    SET enable_seqscan = off
    SET enable_bitmapscan = off
    SET enable_sort = off
    SET enable_hashjoin = off
    SET enable_mergejoin = off
    SET plan_cache_mode = force_generic_plan
    SET jit = off
AS $$
DECLARE
    moment timestamptz := clock_timestamp();
    until timestamptz := moment + $3 * interval '1 microsecond';
    dead_holds boolean := $7 & 1 = 1;
    partition_count integer := length($8);
    woken_count bigint := 0;
    low bigint := $5;
    room bigint;
    rounds integer := 0;
    found_count bigint;
    keyed_count bigint;
    lows bigint[];
    highs bigint[];
    torn_stretches int8range[];
    stretch record;
    marker pillarbox.outbox%ROWTYPE;
    mark bigint;
    top bigint := 0;
    tids tid[];
    taken tid[] := '{}';
    torn text[];
    held text[];
    stuck text[] := '{}';
BEGIN
    IF $1 IS NULL THEN
        RAISE EXCEPTION 'this call was meant for another outbox' USING ERRCODE = 'invalid_sql_statement_name';
    END IF;
    -- A snapshot that is older than a lock does not show what others took before.
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        RAISE EXCEPTION 'messages are claimed in transactions of isolation level READ COMMITTED only' USING ERRCODE = 'PBX02';
    END IF;
    IF $7 & 2 = 2 THEN
        RETURN QUERY SELECT * FROM pillarbox.outbox_claim_in_sequence($1, $2, $3, $4, $6, dead_holds);
        RETURN;
    END IF;
    IF $5 = 0 THEN
        -- Not more than it needs where this may be a transaction that stays open.
        PERFORM pillarbox.outbox_spread(moment, CASE WHEN $10 IS NULL THEN $4 / 500 + 1 ELSE 100 END);
    END IF;
    IF EXISTS (
        SELECT FROM pillarbox.outbox_shelf AS shelf
        WHERE shelf.state = 'pending' AND shelf.wake_at <= moment
        ORDER BY shelf.wake_at LIMIT 1)
    THEN
        mark := pillarbox.outbox_mark(0);
        tids := ARRAY(
            SELECT shelf.ctid FROM pillarbox.outbox_shelf AS shelf
            WHERE shelf.state = 'pending' AND shelf.wake_at <= moment AND shelf.due_at <= moment
              AND (shelf.expires_at IS NULL OR shelf.expires_at > moment)
              AND (shelf.message_key IS NULL OR (
                ($8 IS NULL OR get_byte($8, abs(coalesce(shelf.key_hash, 0) % partition_count)::integer) = 1)
                AND NOT EXISTS (
                    SELECT FROM pillarbox.outbox AS lane
                    WHERE lane.message_key = shelf.message_key AND lane.id < shelf.id)
                AND NOT EXISTS (
                    SELECT FROM pillarbox.outbox AS lane
                    WHERE lane.message_key = shelf.message_key AND lane.id <= mark AND lane.locked_until > moment)
                AND NOT EXISTS (
                    SELECT FROM pillarbox.outbox_shelf AS earlier
                    WHERE earlier.message_key = shelf.message_key AND earlier.id < shelf.id AND earlier.state <> 'done'
                      AND CASE earlier.state WHEN 'dead' THEN dead_holds ELSE earlier.settled_by IS NOT NULL END)))
            ORDER BY shelf.wake_at, shelf.id
            LIMIT $4
            FOR UPDATE SKIP LOCKED);
        SELECT array_agg(DISTINCT shelf.message_key), max(shelf.id) INTO held, mark
        FROM pillarbox.outbox_shelf AS shelf
        WHERE shelf.ctid = ANY (tids) AND shelf.message_key IS NOT NULL;
        IF mark IS NOT NULL THEN
            mark := pillarbox.outbox_mark(mark);
            held := pillarbox.outbox_held(held, array_fill(0::bigint, ARRAY[cardinality(held)]), '{}', tids, moment, mark);
            tids := ARRAY(
                SELECT shelf.ctid FROM pillarbox.outbox_shelf AS shelf
                WHERE shelf.ctid = ANY (tids) AND (shelf.message_key IS NULL OR (
                    shelf.message_key <> ALL (held)
                    AND NOT EXISTS (
                        SELECT FROM pillarbox.outbox AS lane
                        WHERE lane.message_key = shelf.message_key AND lane.id < shelf.id))));
        END IF;
        RETURN QUERY SELECT * FROM pillarbox.outbox_wake(tids, $1, $2, $3, moment);
        GET DIAGNOSTICS woken_count = ROW_COUNT;
    END IF;
    IF $10 <= $4 AND woken_count = 0 AND $9 IS NULL THEN
        FOR stretch IN SELECT * FROM pillarbox.outbox_take($1, $2, until, $4, $5, moment, $10) LOOP
            marker.id := stretch.first;
            marker.attempts := stretch.row_count;
            marker.lost_lease_count := stretch.has_rest::integer;
            RETURN NEXT marker;
        END LOOP;
        IF FOUND THEN
            RETURN;
        END IF;
    END IF;
    room := $4 - woken_count;
    SELECT * INTO lows, highs, torn_stretches FROM pillarbox.outbox_gaps($5);
    LOOP
        SELECT array_agg(ready.tid), max(ready.id), count(*), count(ready.message_key)
        INTO tids, low, found_count, keyed_count
        FROM (
            SELECT found.* FROM unnest(lows, highs) AS gap (above, below)
            CROSS JOIN LATERAL (
                SELECT ready.ctid AS tid, ready.id, ready.message_key FROM pillarbox.outbox AS ready
                WHERE ready.id > greatest(gap.above, low) AND ready.id < gap.below
                  AND (ready.due_at IS NULL OR ready.due_at <= moment)
                  AND (ready.expires_at IS NULL OR ready.expires_at > moment)
                  AND (ready.owner_token IS NULL OR (ready.locked_until <= moment AND ready.lost_lease_count < $6))
                  AND (torn_stretches IS NULL OR ready.fence <> 0 OR ready.owner_token IS NOT NULL
                    OR NOT ready.id <@ ANY (torn_stretches))
                  AND ($9 IS NULL OR ready.topic <> ALL ($9))
                  AND (ready.message_key IS NULL OR (
                    ready.message_key NOT IN (SELECT unnest(stuck))
                    AND ($8 IS NULL OR get_byte($8, abs(coalesce(ready.key_hash, 0) % partition_count)::integer) = 1)
                    AND ($9 IS NULL OR (
                        SELECT first.topic FROM pillarbox.outbox AS first
                        WHERE first.message_key = ready.message_key ORDER BY first.id LIMIT 1) <> ALL ($9))))
                ORDER BY ready.id
                LIMIT room
                FOR NO KEY UPDATE SKIP LOCKED) AS found
            LIMIT room) AS ready;
        EXIT WHEN found_count = 0;
        -- Locked first and looked at then; outbox_take says why.
        IF EXISTS (SELECT FROM pillarbox.outbox_lease WHERE first_id > $5 - 2048) THEN
            tids := ARRAY(
                SELECT mine.ctid FROM pillarbox.outbox AS mine
                WHERE mine.ctid = ANY (tids) AND NOT (mine.owner_token IS NULL AND mine.fence = 0 AND EXISTS (
                    SELECT FROM pillarbox.outbox_lease AS lease
                    WHERE lease.first_id <= mine.id AND lease.first_id > mine.id - 2048 AND lease.last_id >= mine.id)));
        END IF;
        taken := taken || tids;
        IF keyed_count = 0 AND cardinality(tids) < found_count THEN
            rounds := rounds + 1;
            room := $4 - woken_count - cardinality(taken);
            EXIT WHEN rounds = 8;
            SELECT * INTO lows, highs, torn_stretches FROM pillarbox.outbox_gaps($5);
            CONTINUE;
        END IF;
        EXIT WHEN keyed_count = 0;
        top := low;
        mark := pillarbox.outbox_mark(0);
        SELECT * INTO taken, torn FROM pillarbox.outbox_runs(taken, mark, moment, dead_holds);
        EXIT WHEN torn IS NULL;
        stuck := stuck || torn;
        rounds := rounds + 1;
        EXIT WHEN found_count < room OR rounds = 8;
        room := $4 - woken_count - coalesce(cardinality(taken), 0);
        EXIT WHEN room = 0;
    END LOOP;
    -- Only what is taken lifts the mark, and not what was locked and let go: whoever looks, looks at all rows up to there.
    IF top > mark THEN
        SELECT max(mine.id) INTO top FROM pillarbox.outbox AS mine
        WHERE mine.ctid = ANY (taken) AND mine.message_key IS NOT NULL;
        IF top > mark THEN
            mark := pillarbox.outbox_mark(top);
            SELECT * INTO taken, torn FROM pillarbox.outbox_runs(taken, mark, moment, dead_holds);
        END IF;
    END IF;
    RETURN QUERY
    UPDATE pillarbox.outbox AS live
    SET owner_token = $1, fence = $2, locked_until = until,
        attempts = least(live.attempts, 2147483646) + 1,
        lost_lease_count = CASE WHEN live.owner_token IS NULL THEN live.lost_lease_count
                                ELSE least(live.lost_lease_count, 2147483646) + 1 END
    WHERE live.ctid = ANY (taken)
    RETURNING live.*;
END $$;

-- The same where all messages have one key ($5: lost leases at the most, $6: whether a dead message holds back): rows from the
-- start of the table, without a gap, while none is held, as far as the mark says, and nothing before them waits. Whoever claims
-- next waits for this one.
CREATE OR REPLACE FUNCTION pillarbox.outbox_claim_in_sequence(uuid, bigint, bigint, bigint, integer, boolean)
RETURNS SETOF pillarbox.outbox LANGUAGE plpgsql
    SET enable_seqscan = off
    SET enable_bitmapscan = off
    SET enable_sort = off
    SET enable_hashjoin = off
    SET enable_mergejoin = off
    SET plan_cache_mode = force_generic_plan
    SET jit = off
AS $$
DECLARE
    moment timestamptz := clock_timestamp();
    until timestamptz := moment + $3 * interval '1 microsecond';
    woken_count bigint := 0;
    held_back bigint;
    mark bigint;
    tids tid[];
    taken_count bigint;
    last_id bigint;
BEGIN
    -- Two at once could each see the other's rows as free.
    IF NOT pg_try_advisory_xact_lock(hashtextextended('pillarbox.outbox in sequence', 0)) THEN
        RETURN;
    END IF;
    mark := pillarbox.outbox_mark(0);
    PERFORM pillarbox.outbox_spread(moment, 100);
    IF pillarbox.outbox_has_stretches()
        OR EXISTS (SELECT FROM pillarbox.outbox AS live WHERE live.id <= mark AND live.locked_until > moment)
    THEN
        RETURN;
    END IF;
    held_back := least(
        (SELECT back.id FROM pillarbox.outbox_shelf AS back
         WHERE back.state = 'pending' AND back.settled_by IS NOT NULL ORDER BY back.id LIMIT 1),
        CASE WHEN $6 THEN (
            SELECT dead.id FROM pillarbox.outbox_shelf AS dead WHERE dead.state = 'dead' ORDER BY dead.id LIMIT 1) END);
    IF EXISTS (
        SELECT FROM pillarbox.outbox_shelf AS shelf
        WHERE shelf.state = 'pending' AND shelf.wake_at <= moment
        ORDER BY shelf.wake_at LIMIT 1)
    THEN
        tids := ARRAY(
            SELECT shelf.ctid FROM pillarbox.outbox_shelf AS shelf
            WHERE shelf.state = 'pending' AND shelf.wake_at <= moment AND shelf.due_at <= moment
              AND (shelf.expires_at IS NULL OR shelf.expires_at > moment)
              AND (held_back IS NULL OR shelf.id <= held_back)
              AND NOT EXISTS (SELECT FROM pillarbox.outbox AS live WHERE live.id < shelf.id)
            ORDER BY shelf.wake_at, shelf.id
            LIMIT $4
            FOR UPDATE SKIP LOCKED);
        PERFORM pillarbox.outbox_mark(max(shelf.id)) FROM pillarbox.outbox_shelf AS shelf WHERE shelf.ctid = ANY (tids);
        RETURN QUERY SELECT * FROM pillarbox.outbox_wake(tids, $1, $2, $3, moment);
        GET DIAGNOSTICS woken_count = ROW_COUNT;
    END IF;
    IF woken_count > 0 THEN
        RETURN;
    END IF;
    SELECT array_agg(taken.tid), count(*), max(taken.id) INTO tids, taken_count, last_id
    FROM (
        SELECT ready.ctid AS tid, ready.id FROM pillarbox.outbox AS ready
        WHERE (held_back IS NULL OR ready.id < held_back)
          AND (ready.due_at IS NULL OR ready.due_at <= moment)
          AND (ready.expires_at IS NULL OR ready.expires_at > moment)
          AND (ready.owner_token IS NULL OR (ready.locked_until <= moment AND ready.lost_lease_count < $5))
        ORDER BY ready.id
        LIMIT $4
        FOR NO KEY UPDATE SKIP LOCKED) AS taken;
    IF taken_count <> (SELECT count(*) FROM pillarbox.outbox AS live WHERE live.id <= last_id) THEN
        tids := ARRAY(
            SELECT prefix.tid
            FROM (
                SELECT live.ctid AS tid, bool_and(live.ctid = ANY (tids)) OVER (ORDER BY live.id) AS is_whole
                FROM pillarbox.outbox AS live WHERE live.id <= last_id) AS prefix
            WHERE prefix.is_whole);
    END IF;
    mark := pillarbox.outbox_mark(last_id);
    IF pillarbox.outbox_has_stretches() OR EXISTS (
        SELECT FROM pillarbox.outbox AS live
        WHERE live.id > last_id AND live.id <= mark AND live.locked_until > moment)
    THEN
        RETURN;
    END IF;
    RETURN QUERY
    UPDATE pillarbox.outbox AS live
    SET owner_token = $1, fence = $2, locked_until = until,
        attempts = least(live.attempts, 2147483646) + 1,
        lost_lease_count = CASE WHEN live.owner_token IS NULL THEN live.lost_lease_count
                                ELSE least(live.lost_lease_count, 2147483646) + 1 END
    WHERE live.ctid = ANY (tids)
    RETURNING live.*;
END $$;

-- Acknowledges rows from $1 to $2 for owner $6. $4 are the fences of all rows from $3 on, zero for those that are not meant: their own
-- ones, or that of the lease of a stretch, $5, which stands beside them; NULL where all rows of a stretch are meant. $7 says what is left
-- of them, $8 is the moment. Answers how many went. Called by outbox_settle, under its settings.
CREATE OR REPLACE FUNCTION pillarbox.outbox_ack(
    bigint, bigint, bigint, bigint[], bigint, uuid, smallint, timestamptz) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    holder uuid := CASE WHEN $5 IS NULL THEN $6 END;
    uncounted integer := CASE WHEN $5 IS NULL THEN 0 ELSE 1 END;
    changed bigint;
BEGIN
    IF $7 = 0 THEN
        DELETE FROM pillarbox.outbox AS live
        WHERE live.id BETWEEN $1 AND $2 AND live.owner_token IS NOT DISTINCT FROM holder
          AND live.fence = CASE
            WHEN $4 IS NULL THEN 0 WHEN $5 IS NULL THEN $4[live.id - $3 + 1] WHEN $5 = $4[live.id - $3 + 1] THEN 0 END;
        GET DIAGNOSTICS changed = ROW_COUNT;
    ELSIF $7 = 1 THEN
        WITH gone AS (
            DELETE FROM pillarbox.outbox AS live
            WHERE live.id BETWEEN $1 AND $2 AND live.owner_token IS NOT DISTINCT FROM holder
              AND live.fence = CASE
                WHEN $4 IS NULL THEN 0 WHEN $5 IS NULL THEN $4[live.id - $3 + 1] WHEN $5 = $4[live.id - $3 + 1] THEN 0 END
            RETURNING live.id, live.message_id, live.topic, live.message_type, live.created_at, live.attempts,
                live.lost_lease_count, live.priority, live.due_at, live.expires_at
        )
        INSERT INTO pillarbox.outbox_shelf (
            id, message_id, state, is_receipt, topic, message_type, created_at, attempts, lost_lease_count, priority,
            settled_at, settled_by, due_at, expires_at, payload)
        SELECT
            id, message_id, 'done', true, topic, message_type, created_at, least(attempts, 2147483646) + uncounted,
            lost_lease_count, priority, $8, $6, due_at, expires_at, ''
        FROM gone;
        GET DIAGNOSTICS changed = ROW_COUNT;
    ELSE
        WITH gone AS (
            DELETE FROM pillarbox.outbox AS live
            WHERE live.id BETWEEN $1 AND $2 AND live.owner_token IS NOT DISTINCT FROM holder
              AND live.fence = CASE
                WHEN $4 IS NULL THEN 0 WHEN $5 IS NULL THEN $4[live.id - $3 + 1] WHEN $5 = $4[live.id - $3 + 1] THEN 0 END
            RETURNING live.*
        )
        INSERT INTO pillarbox.outbox_shelf (
            id, message_id, state, topic, message_type, created_at, attempts, lost_lease_count, priority, settled_at,
            settled_by, due_at, expires_at, occurred_at, aggregate_type, aggregate_id, tenant_id, message_key,
            key_hash, correlation_id, causation_id, content_type, headers, last_error, payload)
        SELECT
            id, message_id, 'done', topic, message_type, created_at, least(attempts, 2147483646) + uncounted,
            lost_lease_count, priority, $8, $6, due_at, expires_at, occurred_at, aggregate_type, aggregate_id, tenant_id,
            message_key, key_hash, correlation_id, causation_id, content_type, headers, last_error, payload
        FROM gone;
        GET DIAGNOSTICS changed = ROW_COUNT;
    END IF;
    RETURN changed;
END $$;

-- Applies verdicts ($3: 0 ack, 1 fail, 2 abandon, 3 release), each only under the very claim it names: same row ($1), fence
-- ($2) and owner ($6). What leaves the hot table goes to the shelf; what is due again at once stays where it is. $4 are
-- delays, $5 reasons. $7 says what is left of an acknowledged message: 0 nothing, 1 a receipt, 2 all of it.
-- Batches that were all acknowledged, which is most of them, come in another form and have statements of their own: $3 is
-- NULL, $1 the first row and how many are meant, $2 the fences of all rows from there on, zero for those not meant. Their rows
-- lie beside each other, and one walk through them takes two thirds of the work of a search for each. All of them change, or
-- the call fails and must be made again in the first form: to tell which did would cost all those calls that went well.
-- Answers the rows that changed, or NULL when all did.
CREATE OR REPLACE FUNCTION pillarbox.outbox_settle(bigint[], bigint[], smallint[], bigint[], text[], uuid, smallint)
RETURNS bigint[] LANGUAGE plpgsql
    SET enable_seqscan = off
    SET enable_bitmapscan = off
    SET enable_sort = off
    SET enable_hashjoin = off
    SET enable_mergejoin = off
    SET plan_cache_mode = force_generic_plan
    SET jit = off
AS $$
DECLARE
    moment timestamptz := clock_timestamp();
    meant bigint := CASE WHEN $3 IS NULL THEN $1[2] ELSE cardinality($1) END;
    last bigint := $1[1] + cardinality($2) - 1;
    changed bigint := meant;
    low bigint;
    high bigint;
    part bigint;
    lease record;
    applied bigint[];
BEGIN
    IF $6 IS NULL THEN
        RAISE EXCEPTION 'this call was meant for another outbox' USING ERRCODE = 'invalid_sql_statement_name';
    END IF;
    IF $3 IS NULL THEN
        changed := 0;
        FOR lease IN
            SELECT first_id, last_id, fence FROM pillarbox.outbox_lease
            WHERE first_id > greatest($1[1], 0) - 2048 AND first_id <= last AND last_id >= $1[1] AND owner_token = $6
            ORDER BY first_id
        LOOP
            low := greatest(lease.first_id, $1[1]);
            high := least(lease.last_id, last);
            part := pillarbox.outbox_ack(low, high, $1[1],
                CASE WHEN $2[low - $1[1] + 1 : high - $1[1] + 1] <> array_fill(lease.fence, ARRAY[(high - low + 1)::integer])
                    THEN $2 END,
                lease.fence, $6, $7, moment);
            changed := changed + part;
            IF part > 0 AND (part > lease.last_id - lease.first_id OR NOT EXISTS (
                SELECT FROM pillarbox.outbox AS covered
                WHERE covered.id BETWEEN lease.first_id AND lease.last_id AND covered.owner_token IS NULL AND covered.fence = 0))
            THEN
                DELETE FROM pillarbox.outbox_lease
                WHERE ctid = ANY (ARRAY(
                    SELECT ended.ctid FROM pillarbox.outbox_lease AS ended
                    WHERE ended.first_id = lease.first_id AND ended.fence = lease.fence
                    FOR UPDATE SKIP LOCKED));
            END IF;
        END LOOP;
        IF changed < meant THEN
            changed := changed + pillarbox.outbox_ack($1[1], last, $1[1], $2, NULL, $6, $7, moment);
        END IF;
    ELSE
        PERFORM pillarbox.outbox_peel($1, $2, $6);
        IF 2 <= ANY ($3) THEN
            PERFORM pillarbox.outbox_tear($1, $3);
        END IF;
        WITH verdict AS MATERIALIZED (
            SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::smallint[], $4::bigint[], $5::text[])
                AS v (id, fence, code, delay, reason)
        ),
        gone AS (
            DELETE FROM pillarbox.outbox AS live
            USING verdict
            WHERE live.id = verdict.id AND live.fence = verdict.fence AND live.owner_token = $6
              AND (verdict.code < 2 OR verdict.delay > 0)
            RETURNING live.*, verdict.code, verdict.delay, verdict.reason
        ),
        shelved AS (
            INSERT INTO pillarbox.outbox_shelf (
                id, message_id, state, is_receipt, topic, message_type, created_at, attempts, lost_lease_count, priority,
                settled_at, settled_by, due_at, wake_at, expires_at, occurred_at, aggregate_type, aggregate_id, tenant_id,
                message_key, key_hash, correlation_id, causation_id, content_type, headers, last_error, payload)
            SELECT
                id, message_id, CASE code WHEN 0 THEN 'done' WHEN 1 THEN 'dead' ELSE 'pending' END, thin,
                topic, message_type, created_at,
                CASE WHEN code = 3 THEN greatest(attempts - 1, 0) ELSE attempts END, lost_lease_count, priority,
                CASE WHEN code < 2 THEN moment END, owner_token,
                CASE WHEN code < 2 THEN due_at ELSE again_at END,
                CASE WHEN code >= 2 THEN least(again_at, expires_at) END,
                expires_at,
                CASE WHEN NOT thin THEN occurred_at END,
                CASE WHEN NOT thin THEN aggregate_type END,
                CASE WHEN NOT thin THEN aggregate_id END,
                CASE WHEN NOT thin THEN tenant_id END,
                CASE WHEN NOT thin THEN message_key END,
                CASE WHEN NOT thin THEN key_hash END,
                CASE WHEN NOT thin THEN correlation_id END,
                CASE WHEN NOT thin THEN causation_id END,
                CASE WHEN NOT thin THEN content_type END,
                CASE WHEN NOT thin THEN headers END,
                CASE WHEN NOT thin THEN coalesce(reason, last_error) END,
                CASE WHEN thin THEN ''::bytea ELSE payload END
            FROM gone
            CROSS JOIN LATERAL (
                SELECT code = 0 AND $7 = 1, moment + delay * interval '1 microsecond'
            ) AS fate (thin, again_at)
            WHERE code > 0 OR $7 > 0
            ON CONFLICT (message_id) WHERE state = 'pending' DO NOTHING
        ),
        back AS (
            UPDATE pillarbox.outbox AS live
            SET owner_token = NULL, locked_until = NULL, fence = -1, due_at = NULL,
                attempts = CASE WHEN verdict.code = 3 THEN greatest(live.attempts - 1, 0) ELSE live.attempts END,
                last_error = coalesce(verdict.reason, live.last_error)
            FROM verdict
            WHERE live.id = verdict.id AND live.fence = verdict.fence AND live.owner_token = $6
              AND verdict.code >= 2 AND verdict.delay = 0
            RETURNING live.id
        )
        SELECT array_agg(id) INTO applied FROM (SELECT id FROM gone UNION ALL SELECT id FROM back) AS changed;
    END IF;
    IF changed <> meant THEN
        RAISE EXCEPTION 'some of the settled messages are held by nobody or by others' USING ERRCODE = 'PBX01';
    END IF;
    RETURN CASE WHEN $3 IS NULL OR cardinality(applied) = meant THEN NULL ELSE coalesce(applied, '{}') END;
END $$;

-- Makes leases of rows $1, claimed with fences $2 by owner $3, last for $4 microseconds from now. Guarded like a settlement; no indexed
-- column changes, so it stays HOT. A stretch of which all rows are named goes on as one. Answers the rows that were renewed.
CREATE OR REPLACE FUNCTION pillarbox.outbox_renew(bigint[], bigint[], uuid, bigint) RETURNS SETOF bigint LANGUAGE plpgsql
    SET enable_seqscan = off
    SET enable_bitmapscan = off
    SET enable_sort = off
    SET enable_hashjoin = off
    SET enable_mergejoin = off
    SET plan_cache_mode = force_generic_plan
    SET jit = off
AS $$
DECLARE
    until timestamptz := clock_timestamp() + $4 * interval '1 microsecond';
    lease record;
    named bigint[];
    renewed bigint[] := '{}';
BEGIN
    FOR lease IN
        SELECT * FROM pillarbox.outbox_lease WHERE fence = ANY ($2) AND owner_token = $3 ORDER BY first_id FOR UPDATE
    LOOP
        named := ARRAY(
            SELECT held.id FROM unnest($1, $2) AS held (id, fence)
            WHERE held.fence = lease.fence AND held.id BETWEEN lease.first_id AND lease.last_id);
        CONTINUE WHEN cardinality(named) = 0;
        IF NOT EXISTS (
            SELECT FROM pillarbox.outbox AS covered
            WHERE covered.id BETWEEN lease.first_id AND lease.last_id
              AND covered.owner_token IS NULL AND covered.fence = 0 AND covered.id <> ALL (named))
        THEN
            UPDATE pillarbox.outbox_lease SET locked_until = until WHERE first_id = lease.first_id;
            renewed := renewed || ARRAY(
                SELECT covered.id FROM pillarbox.outbox AS covered
                WHERE covered.id BETWEEN lease.first_id AND lease.last_id AND covered.owner_token IS NULL AND covered.fence = 0);
        ELSE
            -- What gets a lease of its own may come free while this one goes on.
            UPDATE pillarbox.outbox_lease SET is_torn = true WHERE first_id = lease.first_id;
        END IF;
    END LOOP;
    RETURN QUERY SELECT unnest(renewed);
    IF cardinality(renewed) = cardinality($1) THEN
        RETURN;
    END IF;
    PERFORM pillarbox.outbox_peel(
        ARRAY(SELECT held.id FROM unnest($1, $2) AS held (id, fence) WHERE held.id <> ALL (renewed) ORDER BY held.id),
        ARRAY(SELECT held.fence FROM unnest($1, $2) AS held (id, fence) WHERE held.id <> ALL (renewed) ORDER BY held.id), $3);
    RETURN QUERY
    UPDATE pillarbox.outbox AS live
    SET locked_until = until
    FROM unnest($1, $2) AS held (id, fence)
    WHERE live.id = held.id AND live.fence = held.fence AND live.owner_token = $3
    RETURNING live.id;
END $$;

-- What follows is for other languages: simple arguments, the same rules.

-- Which partition a key belongs to: FNV-1a of its bytes, folded to 32 bits, as the library counts it. The 64 bits come in two
-- halves, because their product would overflow; the prime is 2^40 + 435.
CREATE OR REPLACE FUNCTION pillarbox.outbox_key_hash(key text) RETURNS bigint LANGUAGE plpgsql IMMUTABLE STRICT AS $$
DECLARE
    bytes bytea := convert_to(key, 'UTF8');
    high bigint := 3421674724;
    low bigint := 2216829733;
    product bigint;
BEGIN
    FOR place IN 0 .. length(bytes) - 1 LOOP
        low := low # get_byte(bytes, place);
        product := low * 435;
        high := (high * 435 + (low << 8) + (product >> 32)) & 4294967295;
        low := product & 4294967295;
    END LOOP;
    RETURN high # low;
END $$;

-- Refuses what the library refuses, in its words: the field and the limit, never the value. COLUMN names the field, too.
CREATE OR REPLACE FUNCTION pillarbox.outbox_refuse(field text, complaint text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION '% %', field, complaint USING ERRCODE = 'check_violation', COLUMN = field;
END $$;

-- Stores one message inside the caller's transaction; answers its row, or NULL when the message id is known already.
CREATE OR REPLACE FUNCTION pillarbox.enqueue(
    topic text,
    payload bytea,
    key text DEFAULT NULL,
    message_id uuid DEFAULT NULL,
    message_type text DEFAULT NULL,
    correlation_id text DEFAULT NULL,
    causation_id text DEFAULT NULL,
    tenant_id text DEFAULT NULL,
    headers jsonb DEFAULT NULL,
    content_type text DEFAULT NULL,
    delay interval DEFAULT NULL,
    expires_in interval DEFAULT NULL,
    aggregate_type text DEFAULT NULL,
    aggregate_id text DEFAULT NULL,
    occurred_at timestamptz DEFAULT NULL,
    priority integer DEFAULT 0
) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    horizon_max interval := interval '316224000 seconds';
    field text;
    complaint text;
BEGIN
    IF coalesce(topic, '') = '' THEN
        PERFORM pillarbox.outbox_refuse('topic', 'must not be empty');
    ELSIF payload IS NULL THEN
        PERFORM pillarbox.outbox_refuse('payload', 'must not be null');
    ELSIF length(payload) > 1048576 THEN
        PERFORM pillarbox.outbox_refuse(
            'payload', format('must have at most 1048576 bytes, has %s', length(payload)));
    ELSIF message_id = '00000000-0000-0000-0000-000000000000' THEN
        PERFORM pillarbox.outbox_refuse('message_id', 'must not be the nil UUID');
    ELSIF delay > horizon_max THEN
        PERFORM pillarbox.outbox_refuse('delay', 'must lie within 316224000 seconds');
    ELSIF expires_in > horizon_max THEN
        PERFORM pillarbox.outbox_refuse('expires_in', 'must lie within 316224000 seconds');
    ELSIF expires_in <= greatest(delay, interval '0') THEN
        PERFORM pillarbox.outbox_refuse('expires_in', 'must lie after the due time');
    ELSIF NOT coalesce(priority, 0) BETWEEN -32768 AND 32767 THEN
        PERFORM pillarbox.outbox_refuse('priority', 'must be -32768 to 32767');
    ELSIF occurred_at < '1970-01-01 00:00+00' OR occurred_at >= '2200-01-01 00:00+00' THEN
        PERFORM pillarbox.outbox_refuse('occurred_at', 'must lie in the years 1970 to 2199');
    END IF;
    SELECT texts.name, format('must have at most 255 characters, has %s', char_length(texts.value))
    INTO field, complaint
    FROM (VALUES
        ('topic', topic), ('key', key), ('message_type', message_type), ('correlation_id', correlation_id),
        ('causation_id', causation_id), ('tenant_id', tenant_id), ('content_type', content_type),
        ('aggregate_type', aggregate_type), ('aggregate_id', aggregate_id)) AS texts (name, value)
    WHERE char_length(texts.value) > 255;
    IF field IS NOT NULL THEN
        PERFORM pillarbox.outbox_refuse(field, complaint);
    END IF;
    IF jsonb_typeof(headers) = 'null' THEN
        headers := NULL;
    ELSIF jsonb_typeof(headers) <> 'object' THEN
        PERFORM pillarbox.outbox_refuse('headers', 'must be a JSON object');
    ELSIF headers IS NOT NULL THEN
        SELECT CASE
            WHEN sum(octet_length(header.name) + octet_length(header.value #>> '{}')) > 65536
                THEN format('must have at most 65536 bytes, has %s',
                    sum(octet_length(header.name) + octet_length(header.value #>> '{}')))
            WHEN bool_or(header.name = '') THEN 'must not have an empty name'
            WHEN bool_or(jsonb_typeof(header.value) NOT IN ('string', 'number', 'boolean'))
                THEN 'must not have a value that is not text, number or truth value'
            END
        INTO complaint FROM jsonb_each(headers) AS header (name, value);
        IF complaint IS NOT NULL THEN
            PERFORM pillarbox.outbox_refuse('headers', complaint);
        END IF;
    END IF;
    RETURN (
        SELECT stored.work_id
        FROM pillarbox.outbox_store_delayed(
            ARRAY[coalesce(message_id, gen_random_uuid())], ARRAY[topic], ARRAY[payload],
            ARRAY[(extract(epoch FROM expires_in) * 1000000)::bigint], NULL, ARRAY[nullif(message_type, '')],
            ARRAY[nullif(aggregate_type, '')], ARRAY[nullif(aggregate_id, '')], ARRAY[nullif(tenant_id, '')],
            ARRAY[nullif(key, '')], ARRAY[nullif(correlation_id, '')], ARRAY[nullif(causation_id, '')],
            ARRAY[nullif(content_type, '')], ARRAY[headers::text], ARRAY[occurred_at], ARRAY[priority::smallint],
            ARRAY[pillarbox.outbox_key_hash(nullif(key, ''))], NULL, NULL, NULL,
            ARRAY[(extract(epoch FROM delay) * 1000000)::bigint], NULL
        ) AS stored);
END $$;

-- The same for text, which is JSON unless it is said what else.
CREATE OR REPLACE FUNCTION pillarbox.enqueue(
    topic text,
    payload text,
    key text DEFAULT NULL,
    message_id uuid DEFAULT NULL,
    message_type text DEFAULT NULL,
    correlation_id text DEFAULT NULL,
    causation_id text DEFAULT NULL,
    tenant_id text DEFAULT NULL,
    headers jsonb DEFAULT NULL,
    content_type text DEFAULT 'application/json',
    delay interval DEFAULT NULL,
    expires_in interval DEFAULT NULL,
    aggregate_type text DEFAULT NULL,
    aggregate_id text DEFAULT NULL,
    occurred_at timestamptz DEFAULT NULL,
    priority integer DEFAULT 0
) RETURNS bigint LANGUAGE sql AS $$
    SELECT pillarbox.enqueue(
        topic, convert_to(payload, 'UTF8'), key, message_id, message_type, correlation_id, causation_id, tenant_id, headers,
        content_type, delay, expires_in, aggregate_type, aggregate_id, occurred_at, priority)
$$;

-- The same for a JSON document.
CREATE OR REPLACE FUNCTION pillarbox.enqueue(
    topic text,
    payload jsonb,
    key text DEFAULT NULL,
    message_id uuid DEFAULT NULL,
    message_type text DEFAULT NULL,
    correlation_id text DEFAULT NULL,
    causation_id text DEFAULT NULL,
    tenant_id text DEFAULT NULL,
    headers jsonb DEFAULT NULL,
    content_type text DEFAULT 'application/json',
    delay interval DEFAULT NULL,
    expires_in interval DEFAULT NULL,
    aggregate_type text DEFAULT NULL,
    aggregate_id text DEFAULT NULL,
    occurred_at timestamptz DEFAULT NULL,
    priority integer DEFAULT 0
) RETURNS bigint LANGUAGE sql AS $$
    SELECT pillarbox.enqueue(
        topic, convert_to(payload::text, 'UTF8'), key, message_id, message_type, correlation_id, causation_id, tenant_id,
        headers, content_type, delay, expires_in, aggregate_type, aggregate_id, occurred_at, priority)
$$;

-- Claims up to batch messages for an owner.
CREATE OR REPLACE FUNCTION pillarbox.claim(owner uuid, lease interval, batch integer)
RETURNS SETOF pillarbox.outbox LANGUAGE plpgsql AS $$
BEGIN
    IF coalesce(owner, '00000000-0000-0000-0000-000000000000') = '00000000-0000-0000-0000-000000000000' THEN
        RAISE EXCEPTION 'owner must not be empty' USING ERRCODE = 'check_violation';
    END IF;
    IF coalesce(lease, interval '0') <= interval '0' THEN
        RAISE EXCEPTION 'lease must be longer than zero' USING ERRCODE = 'check_violation';
    END IF;
    IF coalesce(batch, 0) < 1 THEN
        RAISE EXCEPTION 'batch must be at least 1' USING ERRCODE = 'check_violation';
    END IF;
    RETURN QUERY SELECT * FROM pillarbox.outbox_claim(
        owner, floor(random() * 9007199254740991)::bigint + 1,
        (extract(epoch FROM lease) * 1000000)::bigint, batch, 0, 5, 1, NULL, NULL, NULL) AS claimed ORDER BY claimed.id;
END $$;

-- One verdict for many rows of one owner; answers how many it concerned. The fence is looked up: who calls this by hand
-- holds no older claim of the same owner.
CREATE OR REPLACE FUNCTION pillarbox.outbox_settle_all(owner uuid, ids bigint[], code smallint, delays bigint[], reason text)
RETURNS integer LANGUAGE plpgsql AS $$
DECLARE
    held bigint[];
    fences bigint[];
BEGIN
    SELECT array_agg(live.id ORDER BY live.id), array_agg(live.fence ORDER BY live.id) INTO held, fences
    FROM pillarbox.outbox AS live
    WHERE live.id = ANY (ids) AND live.owner_token = owner;
    IF held IS NULL THEN
        RETURN 0;
    END IF;
    RETURN coalesce(cardinality(pillarbox.outbox_settle(
        held, fences, array_fill(code, ARRAY[cardinality(held)]),
        coalesce(delays[1:cardinality(held)], ARRAY(
            -- Two to the power of the attempts in seconds, at most a minute.
            SELECT (least(2 ^ least(live.attempts, 6), 60) * 1000000)::bigint
            FROM pillarbox.outbox AS live WHERE live.id = ANY (held) ORDER BY live.id)),
        array_fill(nullif(left(reason, 4000), ''), ARRAY[cardinality(held)]), owner, 2::smallint)), cardinality(held));
END $$;

-- The messages are done, and kept as long as the library's retention says.
CREATE OR REPLACE FUNCTION pillarbox.ack(owner uuid, ids bigint[]) RETURNS integer LANGUAGE sql AS $$
    SELECT pillarbox.outbox_settle_all(owner, ids, 0::smallint, array_fill(0::bigint, ARRAY[cardinality(ids)]), NULL)
$$;

-- The messages are tried again, after the delay or after a time that doubles with every attempt.
CREATE OR REPLACE FUNCTION pillarbox.abandon(owner uuid, ids bigint[], reason text DEFAULT NULL, delay interval DEFAULT NULL)
RETURNS integer LANGUAGE sql AS $$
    SELECT pillarbox.outbox_settle_all(
        owner, ids, 2::smallint,
        CASE WHEN delay IS NOT NULL
             THEN array_fill((extract(epoch FROM delay) * 1000000)::bigint, ARRAY[cardinality(ids)]) END,
        reason)
$$;

-- The messages are dead.
CREATE OR REPLACE FUNCTION pillarbox.fail(owner uuid, ids bigint[], reason text DEFAULT NULL)
RETURNS integer LANGUAGE sql AS $$
    SELECT pillarbox.outbox_settle_all(owner, ids, 1::smallint, array_fill(0::bigint, ARRAY[cardinality(ids)]), reason)
$$;

-- Frees leases that ran out. A message whose leases run out too often is left to the library's reaper, which buries it.
CREATE OR REPLACE FUNCTION pillarbox.reap() RETURNS integer LANGUAGE sql AS $$
    SELECT pillarbox.outbox_spread(clock_timestamp(), 1000);
    WITH released AS (
        UPDATE pillarbox.outbox
        SET owner_token = NULL, locked_until = NULL, fence = -1, lost_lease_count = lost_lease_count + 1
        WHERE ctid = ANY (ARRAY(
            SELECT live.ctid FROM pillarbox.outbox AS live
            WHERE live.owner_token IS NOT NULL AND live.locked_until <= clock_timestamp() AND live.lost_lease_count < 5
            FOR UPDATE SKIP LOCKED))
        RETURNING id
    )
    SELECT count(*)::integer FROM released
$$;
