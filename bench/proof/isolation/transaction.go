package isolation

import (
	"fmt"
	"time"
)

// Kind is what a micro-operation does to its key. A key holds either a list (Append, ReadList) or a
// register (Write, Read), never both.
type Kind uint8

const (
	// Append adds Value at the end of the key's list.
	Append Kind = iota
	// ReadList found List; a key that is not there has the empty list.
	ReadList
	// Write makes Value the key's value.
	Write
	// Read found Value, or, with Absent, nothing. Nothing is what a key holds before its first
	// write.
	Read
)

// Operation is one micro-operation. A read is only recorded with its answer.
type Operation struct {
	Kind Kind
	Key  string
	// Value is what an Append or a Write wrote, and what a Read found. No value is ever written
	// twice to one key.
	Value string
	// Absent says that a Read found nothing.
	Absent bool
	// List is what a ReadList found. The checker keeps it and does not change it.
	List []string
}

func (o Operation) writes() bool { return o.Kind == Append || o.Kind == Write }
func (o Operation) list() bool   { return o.Kind == Append || o.Kind == ReadList }

// Outcome is what the client knows of a transaction's effect.
type Outcome uint8

const (
	// Unknown: the transaction has not ended, or ended without the client learning whether it took
	// effect. It may do so at any later moment, once, or never.
	Unknown Outcome = iota
	// Committed: the transaction took effect before its end.
	Committed
	// Aborted: the transaction certainly had no effect and never will.
	Aborted
)

func (o Outcome) String() string {
	switch o {
	case Unknown:
		return "unknown"
	case Committed:
		return "commit"
	case Aborted:
		return "abort"
	default:
		return fmt.Sprintf("outcome %d", uint8(o))
	}
}

// Timestamp is where a database that has commit timestamps says that a transaction lies. The zero
// Timestamp is none.
type Timestamp struct {
	Wall    int64
	Logical uint32
}

// IsZero says that no timestamp was given.
func (t Timestamp) IsZero() bool { return t == Timestamp{} }

// Less orders timestamps.
func (t Timestamp) Less(other Timestamp) bool {
	return t.Wall < other.Wall || (t.Wall == other.Wall && t.Logical < other.Logical)
}

func (t Timestamp) String() string { return fmt.Sprintf("%d.%d", t.Wall, t.Logical) }

// Transaction is one attempt of one client. An attempt that is repeated with the same values is one
// transaction; one that is repeated with others is an aborted transaction and a new one.
type Transaction struct {
	// Name is for people; without one a transaction is called by its place in the history: T0, T1,
	// ...
	Name string
	// Session is the client. A session's transactions follow one another: each begins after the one
	// before has ended.
	Session int
	// Begin and End are offsets on one monotonic clock: Begin is before the first request left, End
	// after the last answer came. Equal times order nothing. The End of an unknown transaction says
	// only when the client gave up; 0 is never.
	Begin, End time.Duration
	Outcome    Outcome
	Operations []Operation

	// Commit is the transaction's timestamp if the database told it; of a transaction that writes
	// nothing, its read timestamp.
	Commit Timestamp
	// Snapshot marks a read-only transaction that asked for one past moment by its timestamp. It
	// sees that moment, which may be long before its Begin: nothing that ended before it has to be
	// in it.
	Snapshot Timestamp
	// Final marks a transaction that read when all others had ended and the database was whole
	// again: what was committed and is not in its lists is lost, at every level.
	Final bool
}

// timestamp is where the transaction says it lies, if it does.
func (t *Transaction) timestamp() Timestamp {
	if !t.Snapshot.IsZero() {
		return t.Snapshot
	}
	return t.Commit
}

// writes says whether the transaction writes anything.
func (t *Transaction) writes() bool {
	for i := range t.Operations {
		if t.Operations[i].writes() {
			return true
		}
	}
	return false
}
