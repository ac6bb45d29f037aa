package access

// Right is what a client may do with keys of a keyspace. Rights are added up by |.
type Right uint8

// The rights. None contains another: writing is not reading.
const (
	// Read is for gets, scans, counts, and the feed of changes.
	Read Right = 1 << iota
	// Write is for puts, deletions, increments, locks of transactions.
	Write
	// Admin is for altering and dropping the keyspace, loading into it, and creating its consumers.
	// It is for a whole keyspace.
	Admin
	// Any is any of these, for any key of the keyspace. It stands alone, and its Permission is for
	// the whole keyspace.
	Any
)

// Credentials are what a connection has shown to identify its client. All of them may be empty.
type Credentials struct {
	// Token is what a password was exchanged for.
	Token string
	// CertificateName is the common name of a verified certificate of a client. The token counts if
	// there are both.
	CertificateName string
	// Address is where the connection comes from, for audit only.
	Address string
}

// Permission is a right that a request needs: for the keys in [Start, End) of a keyspace, as the
// user wrote them. A nil End is for the key Start alone; an End that is empty and not nil is
// without end, so an empty Start with it is the whole keyspace.
type Permission struct {
	Keyspace   uint64
	Start, End []byte
	Right      Right
}

// Guard knows users. Its methods are safe for concurrent use.
type Guard interface {
	// Enabled says that requests need permissions: that authentication is enabled, or may be for
	// all that this server knows. It costs an atomic load. While it is false May is not asked.
	Enabled() bool
	// Client returns the client that has shown that. It is good for as long as its connection: what
	// May says follows changes of users and roles, and the end of the token.
	Client(shown Credentials) Client
}

// Client is the client of a connection. Its methods are safe for concurrent use and do not block.
type Client interface {
	// Standing says what holds whatever a request needs, and costs as little as if it needed nothing:
	// free, that the client may do everything, for the moment; an error of this package, that it may
	// do nothing. Otherwise May decides.
	Standing() (free bool, err error)
	// May returns nil if the client has all that is needed, which it has while authentication is not
	// enabled, and else an error of this package. The permissions are only read, and not kept.
	May(needed []Permission) error
	// MayAny says whether the client has any right to any key of a keyspace, which it has while
	// authentication is not enabled. A refusal is neither counted nor logged.
	MayAny(keyspace uint64) bool
	// Name is the user's, for audit and errors; "" if none is known.
	Name() string
}
