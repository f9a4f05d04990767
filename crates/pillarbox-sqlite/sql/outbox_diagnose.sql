-- What can be known of the file and the connection, as names and values.
SELECT 'journal_mode' AS name, CAST(journal_mode AS TEXT) AS value FROM pragma_journal_mode
 UNION ALL
SELECT 'synchronous', CAST(synchronous AS TEXT) FROM pragma_synchronous
 UNION ALL
SELECT 'query_only', CAST(query_only AS TEXT) FROM pragma_query_only
 UNION ALL
SELECT 'freelist_count', CAST(freelist_count AS TEXT) FROM pragma_freelist_count
 UNION ALL
SELECT 'page_count', CAST(page_count AS TEXT) FROM pragma_page_count
 UNION ALL
SELECT 'max_page_count', CAST(max_page_count AS TEXT) FROM pragma_max_page_count
 UNION ALL
SELECT 'page_size', CAST(page_size AS TEXT) FROM pragma_page_size;
