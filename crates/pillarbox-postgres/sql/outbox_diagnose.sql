-- What can be known of the server, the connection and the rights of the user, as names and values. Everything here may be
-- read by every user; what others run is shown to those with pg_read_all_stats only.
SELECT name, setting AS value
FROM pg_settings
WHERE name IN (
    'default_transaction_isolation', 'fsync', 'full_page_writes', 'max_connections', 'synchronous_commit')
UNION ALL
SELECT 'recovery', pg_is_in_recovery()::text
UNION ALL
SELECT 'connections', sum(numbackends)::text FROM pg_stat_database
UNION ALL
SELECT 'ssl', ssl::text FROM pg_stat_ssl WHERE pid = pg_backend_pid()
UNION ALL
SELECT 'transaction_seconds', greatest(0, extract(epoch FROM clock_timestamp() - min(xact_start)))::bigint::text
FROM pg_stat_activity
WHERE backend_xmin IS NOT NULL AND pid <> pg_backend_pid()
UNION ALL
SELECT 'missing_grant', 'USAGE ON SCHEMA ' || nspname
FROM pg_namespace
WHERE nspname = $1 AND NOT has_schema_privilege(oid, 'USAGE')
UNION ALL
SELECT 'missing_grant', privilege || ' ON ' || nspname || '.' || relname
FROM pg_class
JOIN pg_namespace ON pg_namespace.oid = relnamespace
CROSS JOIN unnest(ARRAY['SELECT', 'INSERT', 'UPDATE', 'DELETE']) AS privilege
WHERE nspname = $1 AND relname IN ($2, $2 || '_shelf', $2 || '_lease') AND relkind = 'r'
  AND NOT has_table_privilege(pg_class.oid, privilege)
UNION ALL
SELECT 'missing_grant', 'SELECT ON ' || nspname || '.' || relname
FROM pg_class
JOIN pg_namespace ON pg_namespace.oid = relnamespace
WHERE nspname = $1 AND relname = $2 || '_live' AND relkind = 'v' AND NOT has_table_privilege(pg_class.oid, 'SELECT')
UNION ALL
SELECT 'missing_grant', 'USAGE ON SEQUENCE ' || nspname || '.' || relname
FROM pg_class
JOIN pg_namespace ON pg_namespace.oid = relnamespace
WHERE nspname = $1 AND relname IN ($2 || '_id', $2 || '_claimed')
  AND CASE WHEN relkind = 'S' THEN NOT has_sequence_privilege(pg_class.oid, 'USAGE') END
UNION ALL
SELECT 'missing_grant', 'EXECUTE ON FUNCTION ' || nspname || '.' || proname
FROM pg_proc
JOIN pg_namespace ON pg_namespace.oid = pronamespace
WHERE nspname = $1 AND starts_with(proname, $2 || '_') AND NOT has_function_privilege(pg_proc.oid, 'EXECUTE')
