-- The dry run of a replay or a deletion: the same filter, nothing changed. ?1 keeps the numbers equal to the others. The
-- program puts another state in the place of 'dead'; a receipt is nothing that could be replayed.
SELECT count(*) FILTER (WHERE is_receipt = 0),
       min(settled_at) FILTER (WHERE is_receipt = 0),
       max(settled_at) FILTER (WHERE is_receipt = 0),
       count(*) FILTER (WHERE is_receipt <> 0)
  FROM pillarbox_outbox_shelf
 WHERE state = 'dead' AND id > ?1
   AND (?2 IS NULL OR id IN (SELECT value FROM json_each(?2)))
   AND (?3 IS NULL OR topic = ?3)
   AND (?8 IS NULL OR correlation_id = ?8)
   AND (?4 IS NULL OR instr(last_error, ?4) > 0)
   AND (?5 IS NULL OR coalesce(settled_at, created_at) <= (SELECT now FROM pillarbox_outbox_now) - ?5)
   AND (?6 IS NULL OR coalesce(settled_at, created_at) > (SELECT now FROM pillarbox_outbox_now) - ?6);
