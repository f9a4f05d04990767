-- Gives a consumer's lease back; guarded by owner and fence.
UPDATE `pillarbox_inbox_ledger`
SET `state` = 'seen', `owner_token` = NULL, `locked_until` = NULL
WHERE `source` = ? AND `source_id` = ? AND `owner_token` = ? AND `fence` = ? AND `state` = 'processing' AND NOT `is_queued`
