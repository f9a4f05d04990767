-- Counts messages by topic and state. Counts exactly, so it reads both tables.
SELECT topic, state, count(*) AS messages
FROM (
    SELECT topic, CASE WHEN owner_token IS NULL THEN 'pending' ELSE 'processing' END AS state FROM pillarbox.outbox_live
    UNION ALL
    SELECT topic, state FROM pillarbox.outbox_shelf
) AS everything
GROUP BY topic, state
