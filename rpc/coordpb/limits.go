package coordpb

// MaxRenewed is how many leases a call of Renewals.RenewAll renews at most.
const MaxRenewed = 1024
