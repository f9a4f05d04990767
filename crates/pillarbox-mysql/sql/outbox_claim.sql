-- The statements stand in the routine, because the second one's limit depends on the first one's count.
CALL `pillarbox_outbox_claim_rows`(
    x'00000000000000000000000000000000' /*owner*/, 0 /*fence*/, 0 /*lease*/, 1 /*limit*/, 0 /*floor*/, 0 /*lost_leases_max*/,
    0 /*order*/, NULL /*served*/, NULL /*left_out*/)
