-- One window; the routine finds without locks, then locks by id.
CALL `pillarbox_outbox_reap_rows`(NULL /*after*/, 1 /*window*/, 0 /*lost_leases_max*/, FALSE /*park*/)
