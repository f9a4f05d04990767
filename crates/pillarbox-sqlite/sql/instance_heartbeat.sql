-- An instance says that it is there: one statement registers it, or moves on when it was last seen. When it started stays.
INSERT INTO pillarbox_outbox_instance (id, service, host, pid, version, metadata, started_at, last_seen_at)
SELECT ?1, ?2, ?3, ?4, ?5, ?6, now, now FROM pillarbox_outbox_now WHERE true
ON CONFLICT (id) DO UPDATE
   SET service = excluded.service, host = excluded.host, pid = excluded.pid, version = excluded.version,
       metadata = excluded.metadata, last_seen_at = excluded.last_seen_at;
