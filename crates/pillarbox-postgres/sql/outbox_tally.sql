-- How many dead messages match, and since when: the dry run of replay and delete. The program puts another state in the
-- place of this one; a receipt is nothing that could be replayed.
SELECT
    count(*) FILTER (WHERE NOT is_receipt),
    min(settled_at) FILTER (WHERE NOT is_receipt),
    max(settled_at) FILTER (WHERE NOT is_receipt),
    count(*) FILTER (WHERE is_receipt)
FROM pillarbox.outbox_shelf
WHERE state = 'dead'
  AND ($1::bigint[] IS NULL OR id = ANY ($1))
  AND ($2::text IS NULL OR topic = $2)
  AND ($6::text IS NULL OR correlation_id = $6)
  AND ($3::text IS NULL OR strpos(last_error, $3) > 0)
  AND ($4::bigint IS NULL OR settled_at < clock_timestamp() - $4 * interval '1 microsecond')
  AND ($5::bigint IS NULL OR settled_at > clock_timestamp() - $5 * interval '1 microsecond')
