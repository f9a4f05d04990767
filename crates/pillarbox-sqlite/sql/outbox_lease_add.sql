-- Leases of stretches: ?1 is a JSON array of their first and last rows.
INSERT INTO pillarbox_outbox_lease (first_id, last_id, fence, owner_token, locked_until)
SELECT json_extract(value, '$[0]'), json_extract(value, '$[1]'), ?2, ?3, ?4
  FROM json_each(?1);
