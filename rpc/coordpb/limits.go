package coordpb

// MaxRenewed bounds the leases that a call of Renewals.RenewAll renews.
const MaxRenewed = 1024

// FindMembers is in the metadata of a MemberList call whose client only wants the addresses of the
// core's members. A server that is not a member answers the call by itself, even for clients
// without a user, and lists the members without their ids. Other servers ignore the field.
const FindMembers = "tidemark-find-members"
