-- Which messages of a batch are new when some were known: the highest ids, as many as rows were added. The program repeats the
-- question mark.
SELECT id, message_id FROM pillarbox_outbox WHERE message_id IN (? /*messages*/) ORDER BY id DESC LIMIT ?;
