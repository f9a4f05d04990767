-- Whether there are results of receptors on which this user has any right.
SELECT COUNT(*) FROM information_schema.tables
WHERE table_schema = DATABASE() AND table_name = 'pillarbox_outbox_receptor'
