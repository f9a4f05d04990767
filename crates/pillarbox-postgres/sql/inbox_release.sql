-- Gives a consumer's lease back; guarded by owner and fence.
UPDATE pillarbox.inbox_ledger
SET state = 'seen', owner_token = NULL, locked_until = NULL
WHERE source = $1 AND source_id = $2 AND owner_token = $3 AND fence = $4 AND state = 'processing' AND NOT is_queued
RETURNING 1
