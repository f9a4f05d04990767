-- Exact counts by topic and state: reads every row once.
SELECT topic, CASE WHEN owner_token IS NULL THEN 'pending' ELSE 'processing' END AS state, count(*)
  FROM pillarbox_outbox_live
 GROUP BY 1, 2
 UNION ALL
SELECT topic, state, count(*)
  FROM pillarbox_outbox_shelf
 GROUP BY 1, 2;
