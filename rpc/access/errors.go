package access

// Reason is the reason of a refusal.
type Reason int

// The reasons.
const (
	// Unauthenticated: the client sent no token or certificate, or none that is valid (any more).
	// It may ask again with a new token.
	Unauthenticated Reason = iota + 1
	// Denied: the user lacks the permission.
	Denied
	// Unknown: this server cannot decide, because it has not heard from the core for too long.
	// Another server, or this one later, may be able to.
	Unknown
)

// Error is the refusal of a request. Nothing of the request was done.
type Error struct {
	Reason Reason
	// Text says which user needs which right to which keys.
	Text string
}

// Error implements error.
func (e *Error) Error() string { return e.Text }
