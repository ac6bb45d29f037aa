package isolation

import "slices"

// Anomaly is the name of an anomaly that an isolation level may exclude.
type Anomaly string

// The cycles are named as by Adya and by Elle. Each has variants that need a session edge (Process)
// or a real-time edge (RealTime) to close.
const (
	// G0 is a cycle of writes: two transactions overwrote each other (dirty write).
	G0 Anomaly = "G0"
	// G1c is circular information flow: a cycle of write and read dependencies.
	G1c Anomaly = "G1c"
	// GSingle is a cycle with exactly one anti-dependency: read skew.
	GSingle Anomaly = "G-single"
	// GNonadjacent is a cycle with several anti-dependencies, no two of which follow one another: a
	// long fork, for example.
	GNonadjacent Anomaly = "G-nonadjacent"
	// G2Item is a cycle with two anti-dependencies that follow one another: write skew. Snapshot
	// isolation allows it.
	G2Item Anomaly = "G2-item"

	// G1a is an aborted read: a transaction read a value of an aborted transaction.
	G1a Anomaly = "G1a"
	// G1b is an intermediate read: a transaction read a value that the value's own writer replaced.
	G1b Anomaly = "G1b"
	// DirtyUpdate is a committed write on top of an aborted one.
	DirtyUpdate Anomaly = "dirty-update"
	// LostUpdate: several transactions read the same version of a key and all of them wrote the
	// next.
	LostUpdate Anomaly = "lost-update"

	// Internal is a read that contradicts its own transaction's writes.
	Internal Anomaly = "internal"
	// NonRepeatableRead is a transaction that read two versions of a key and did not write the key
	// in between.
	NonRepeatableRead Anomaly = "non-repeatable-read"
	// DuplicateElements is a list with an element twice: a write was applied again.
	DuplicateElements Anomaly = "duplicate-elements"
	// IncompatibleOrder: two reads of a list, neither of which is a prefix of the other.
	IncompatibleOrder Anomaly = "incompatible-order"
	// UnwrittenValue is a value that no transaction wrote.
	UnwrittenValue Anomaly = "unwritten-value"
	// LostWrite is a committed write that a final read does not show.
	LostWrite Anomaly = "lost-write"

	// TimestampOrder: the commit timestamps contradict the order that the reads prove.
	TimestampOrder Anomaly = "timestamp-order"
	// TimestampOrderProcess: a timestamp is smaller than the timestamp of an earlier transaction of
	// the session.
	TimestampOrderProcess Anomaly = "timestamp-order-process"
	// TimestampOrderRealTime: the timestamp of a transaction is smaller than the timestamp of a
	// writer that had ended before the transaction began, or that a transaction had seen which
	// ended before.
	TimestampOrderRealTime Anomaly = "timestamp-order-realtime"
	// UnstableSnapshot: two reads of a key at one timestamp saw different versions.
	UnstableSnapshot Anomaly = "unstable-snapshot"
)

// Process returns the variant of a cycle that needs the order of a session.
func (a Anomaly) Process() Anomaly { return a + "-process" }

// RealTime returns the variant of a cycle that needs the order in real time.
func (a Anomaly) RealTime() Anomaly { return a + "-realtime" }

// Level is the isolation that a database claims.
type Level uint8

const (
	// Serialisable: some serial order explains every answer. It is the zero value, and not the
	// lowest level.
	Serialisable Level = iota
	// SnapshotIsolation (generalised: a snapshot may be old) allows write skew, and orders neither
	// sessions nor real time.
	SnapshotIsolation
	// StrongSessionSerialisable: the serial order keeps the order of every session.
	StrongSessionSerialisable
	// StrictSerialisable: the serial order keeps real time.
	StrictSerialisable
)

func (l Level) String() string {
	switch l {
	case SnapshotIsolation:
		return "snapshot isolation"
	case Serialisable:
		return "serialisable"
	case StrongSessionSerialisable:
		return "strong session serialisable"
	case StrictSerialisable:
		return "strict serialisable"
	default:
		return "unknown level"
	}
}

func (l Level) sessions() bool { return l == StrongSessionSerialisable || l == StrictSerialisable }
func (l Level) realTime() bool { return l == StrictSerialisable }

// Forbids says whether an anomaly breaks the level. Other anomalies are reported, but are no error.
func (l Level) Forbids(a Anomaly) bool { return l != SnapshotIsolation || a != G2Item }

// Options describes the claims of a database, and bounds the work.
type Options struct {
	Level Level
	// KeyRealTime claims, at a lower level than StrictSerialisable, that every key by itself is
	// linearisable. If two transactions access the key and one of them writes it, then the
	// transaction that ended before the other began comes first.
	KeyRealTime bool
	// VersionsByTimestamp takes the order of a register's versions from the commit timestamps of
	// their writers.
	VersionsByTimestamp bool
	// Forbidden, if not nil, replaces the anomalies that Level forbids: exactly these anomalies
	// break the claim. Level still determines which edges are used.
	Forbidden []Anomaly
	// Steps bounds the number of edges that the search for short cycles follows. Default 20
	// million. Whether there is a cycle is decided in linear time, without this bound.
	Steps int
	// Examples is the number of findings of each kind that are kept. Default 5. All findings are
	// counted.
	Examples int
}

func (o Options) withDefaults() Options {
	if o.Steps <= 0 {
		o.Steps = 20_000_000
	}
	if o.Examples <= 0 {
		o.Examples = 5
	}
	return o
}

func (o Options) forbids(a Anomaly) bool {
	if o.Forbidden != nil {
		return slices.Contains(o.Forbidden, a)
	}
	return o.Level.Forbids(a)
}
