-- Counts dead messages by topic, and with $7 also by their last error, the largest groups first, at most $8. Byte by byte,
-- whatever the database's collation.
SELECT topic, CASE WHEN $7 THEN last_error END AS error, count(*) AS messages
FROM pillarbox.outbox_shelf
WHERE state = 'dead'
  AND ($1::bigint[] IS NULL OR id = ANY ($1))
  AND ($2::text IS NULL OR topic = $2)
  AND ($6::text IS NULL OR correlation_id = $6)
  AND ($3::text IS NULL OR strpos(last_error, $3) > 0)
  AND ($4::bigint IS NULL OR settled_at < clock_timestamp() - $4 * interval '1 microsecond')
  AND ($5::bigint IS NULL OR settled_at > clock_timestamp() - $5 * interval '1 microsecond')
GROUP BY 1, 2
ORDER BY 3 DESC, topic COLLATE "C", (CASE WHEN $7 THEN last_error END) COLLATE "C" NULLS FIRST
LIMIT $8
