-- What can be known of the server, the connection and the rights of the user, as names and values. Rights that a role gives
-- are not among these.
SELECT 'innodb_flush_log_at_trx_commit' AS `name`, CAST(@@GLOBAL.innodb_flush_log_at_trx_commit AS CHAR) AS `value`
UNION ALL
SELECT 'log_bin', CAST(@@GLOBAL.log_bin AS CHAR)
UNION ALL
SELECT 'sync_binlog', CAST(@@GLOBAL.sync_binlog AS CHAR)
UNION ALL
SELECT 'max_connections', CAST(@@GLOBAL.max_connections AS CHAR)
UNION ALL
SELECT 'read_only', CAST(@@GLOBAL.read_only AS CHAR)
UNION ALL
SELECT 'role', COALESCE(CAST(CURRENT_ROLE() AS CHAR), 'NONE')
UNION ALL
SELECT 'grant', CAST(`PRIVILEGE_TYPE` AS CHAR) FROM information_schema.`USER_PRIVILEGES`
WHERE `GRANTEE` = CONCAT('''', REPLACE(CURRENT_USER(), '@', '''@'''), '''')
UNION ALL
SELECT 'grant', CAST(`PRIVILEGE_TYPE` AS CHAR) FROM information_schema.`SCHEMA_PRIVILEGES`
WHERE `GRANTEE` = CONCAT('''', REPLACE(CURRENT_USER(), '@', '''@'''), '''') AND DATABASE() LIKE `TABLE_SCHEMA`
UNION ALL
SELECT 'table_grant', CONCAT(`PRIVILEGE_TYPE`, ' ON ', `TABLE_NAME`) FROM information_schema.`TABLE_PRIVILEGES`
WHERE `GRANTEE` = CONCAT('''', REPLACE(CURRENT_USER(), '@', '''@'''), '''') AND `TABLE_SCHEMA` = DATABASE()
    AND `TABLE_NAME` IN ('pillarbox_outbox', 'pillarbox_outbox_shelf', 'pillarbox_outbox_lane', 'pillarbox_outbox_claimed')
;
SHOW STATUS WHERE `Variable_name` IN ('Ssl_cipher', 'Threads_connected')
