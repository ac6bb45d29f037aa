package access

// Right is a set of rights to keys of a keyspace. Rights are combined with |.
type Right uint8

// No right contains another: a client that may write may not read.
const (
	// Read is for gets, scans, counts, and the feed of changes.
	Read Right = 1 << iota
	// Write is for puts, deletions, increments, locks of transactions.
	Write
	// Admin allows altering and dropping the keyspace, loading into it, and creating its consumers.
	// It applies to a whole keyspace.
	Admin
	// Any stands for any of these rights, to any key of the keyspace. It is used alone, and its
	// Permission covers the whole keyspace.
	Any
)

// Credentials is what a connection has sent to identify its client. Fields may be empty.
type Credentials struct {
	// Token is the token that the client got for a password.
	Token string
	// CertificateName is the common name of the client's verified certificate. If there is a token
	// too, the token counts.
	CertificateName string
	// Address is the remote address, for audit only.
	Address string
}

// Permission is a right that a request needs, for the keys in [Start, End) of a keyspace, as the
// client wrote them. A nil End means the key Start alone; an empty, non-nil End means no end, so
// with an empty Start the whole keyspace.
type Permission struct {
	Keyspace   uint64
	Start, End []byte
	Right      Right
}

// Guard knows users. Its methods are safe for concurrent use.
type Guard interface {
	// Enabled reports that requests need permissions: authentication is enabled, or may be, as far
	// as this server knows. It costs an atomic load. While it is false May is not called.
	Enabled() bool
	// Client returns the client with these credentials. It remains valid as long as its connection:
	// May follows changes of users and roles, and the end of the token.
	Client(shown Credentials) Client
}

// Client is the client of a connection. Its methods are safe for concurrent use and do not block.
type Client interface {
	// Standing returns what holds for all requests, and costs as little as a check without
	// permissions. free: the client may do everything, for the moment. An error of this package: it
	// may do nothing. Otherwise May decides.
	Standing() (free bool, err error)
	// May returns nil if the client has all needed permissions, which it has while authentication
	// is not enabled, and otherwise an error of this package. It only reads needed, and does not
	// keep it.
	May(needed []Permission) error
	// MayAny reports whether the client has any right to any key of a keyspace, which it has while
	// authentication is not enabled. A refusal is neither counted nor logged.
	MayAny(keyspace uint64) bool
	// Name returns the user's name, for audit and errors; "" if unknown.
	Name() string
}
