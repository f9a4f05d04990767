-- Rows given back without a delay stay where they are. The fence goes too, so that no settlement applies twice; -1 says that
-- the row came back to its place, perhaps before one of its key that is held.
-- ?2 maps ids to [fence, attempts given back, reason].
UPDATE pillarbox_outbox AS l
   SET owner_token = NULL,
       locked_until = NULL,
       fence = -1,
       due_at = NULL,
       attempts = max(attempts - json_extract(s.value, '$[1]'), 0),
       last_error = coalesce(json_extract(s.value, '$[2]'), last_error)
  FROM json_each(?2) AS s
 WHERE l.id = CAST(s.key AS INTEGER) AND l.fence = json_extract(s.value, '$[0]') AND l.owner_token = ?1
RETURNING id;
