-- Counts dead messages by topic, and with ?9 also by their last error, the largest groups first.
SELECT topic, CASE WHEN ?9 THEN last_error END AS error, count(*) AS messages
  FROM pillarbox_outbox_shelf
 WHERE state = 'dead' AND id > ?1
   AND (?2 IS NULL OR id IN (SELECT value FROM json_each(?2)))
   AND (?3 IS NULL OR topic = ?3)
   AND (?8 IS NULL OR correlation_id = ?8)
   AND (?4 IS NULL OR instr(last_error, ?4) > 0)
   AND (?5 IS NULL OR coalesce(settled_at, created_at) <= (SELECT now FROM pillarbox_outbox_now) - ?5)
   AND (?6 IS NULL OR coalesce(settled_at, created_at) > (SELECT now FROM pillarbox_outbox_now) - ?6)
 GROUP BY 1, 2
 ORDER BY 3 DESC, 1, 2
 LIMIT ?7;
