package coordpb

// MaxRenewed is how many leases a call of Renewals.RenewAll renews at most.
const MaxRenewed = 1024

// FindMembers is in the metadata of a call of MemberList whose client is only to learn where the
// members of the core are. A server that is no member answers the call by itself, for clients
// without a user as well, and lists the members without their ids. Other servers ignore the field.
const FindMembers = "tidemark-find-members"
