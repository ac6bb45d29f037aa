package isolation

import (
	"fmt"
	"time"
)

// Kind is the kind of an operation on a key. A key holds either a list (Append, ReadList) or a
// register (Write, Read), never both.
type Kind uint8

const (
	// Append adds Value at the end of the key's list.
	Append Kind = iota
	// ReadList found List. An absent key has the empty list.
	ReadList
	// Write sets the value of the key to Value.
	Write
	// Read found Value, or found the key absent (Absent). A key is absent before its first write.
	Read
)

// Operation is one operation of a transaction. A read is recorded only with its answer.
type Operation struct {
	Kind Kind
	Key  string
	// Value is the value that an Append or a Write wrote, or that a Read found. No value is written
	// twice to one key.
	Value string
	// Absent says that a Read found the key absent.
	Absent bool
	// List has the elements that a ReadList found. The checker keeps the slice and does not change
	// it.
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

// Timestamp is the commit timestamp or read timestamp of a transaction, in a database that reports
// timestamps. The zero Timestamp means that there is none.
type Timestamp struct {
	Wall    int64
	Logical uint32
}

// IsZero says whether there is no timestamp.
func (t Timestamp) IsZero() bool { return t == Timestamp{} }

// Less orders timestamps.
func (t Timestamp) Less(other Timestamp) bool {
	return t.Wall < other.Wall || (t.Wall == other.Wall && t.Logical < other.Logical)
}

func (t Timestamp) String() string { return fmt.Sprintf("%d.%d", t.Wall, t.Logical) }

// Transaction is one attempt of one client. Repeated attempts with the same values are one
// transaction. If an attempt is repeated with other values, the first attempt is an aborted
// transaction, and the second one a new transaction.
type Transaction struct {
	// Name is for readers of reports. The default is the index in the history: T0, T1, ...
	Name string
	// Session is the client. A session's transactions follow one another: each begins after the one
	// before has ended.
	Session int
	// Begin and End are offsets on one monotonic clock: Begin before the first request was sent,
	// End after the last answer arrived. Equal times order nothing. The End of an unknown
	// transaction is only the time when the client gave up; 0: the transaction did not end.
	Begin, End time.Duration
	Outcome    Outcome
	Operations []Operation

	// Commit is the commit timestamp if the database reported it, or the read timestamp of a
	// transaction that writes nothing.
	Commit Timestamp
	// Snapshot is the timestamp of a read-only transaction that asked for a past timestamp. It may
	// be long before Begin, so the transaction need not see everything that ended before its Begin.
	Snapshot Timestamp
	// Final marks a transaction that read when all others had ended and the database was whole
	// again. A committed element that is not in its lists is lost, at every level.
	Final bool
}

// timestamp returns the timestamp of the transaction; zero if there is none.
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
