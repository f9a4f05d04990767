-- Acknowledged rows of one claim that stand beside each other, and are not kept: what most calls settle.
CALL `pillarbox_outbox_settle_stretch`(
    x'00000000000000000000000000000000' /*owner*/, 0 /*fence*/, 0 /*first*/, 0 /*count*/)
