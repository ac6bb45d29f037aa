package history

import (
	"fmt"
	"time"
)

// Kind is what an operation does to its key.
type Kind uint8

const (
	// Get reads the state into Found.
	Get Kind = iota
	// Put sets the state to New.
	Put
	// Delete makes the key absent. Existed says whether the key was there.
	Delete
	// CompareAndSwap sets the state to New if the state is Expected (Swapped). Otherwise it reads
	// the state into Found. Expected and New may both be absence.
	CompareAndSwap
)

func (k Kind) String() string {
	switch k {
	case Get:
		return "get"
	case Put:
		return "put"
	case Delete:
		return "delete"
	case CompareAndSwap:
		return "compare-and-swap"
	default:
		return fmt.Sprintf("kind %d", uint8(k))
	}
}

// Outcome is what the client knows of an operation's effect.
type Outcome uint8

const (
	// Unknown: the operation has not ended, or ended without the client learning whether it took
	// effect.
	Unknown Outcome = iota
	// Done: the operation took effect and its answer is recorded.
	Done
	// Refused: the operation certainly had no effect and never will.
	Refused
)

func (o Outcome) String() string {
	switch o {
	case Unknown:
		return "unknown"
	case Done:
		return "done"
	case Refused:
		return "refused"
	default:
		return fmt.Sprintf("outcome %d", uint8(o))
	}
}

// State is the state of a key. The zero State is absence.
type State struct {
	Present bool
	Value   string
}

// Absent is the state of an absent key.
var Absent = State{}

// Value is the state of a key that holds v.
func Value(v string) State { return State{Present: true, Value: v} }

func (s State) String() string {
	if !s.Present {
		return "nothing"
	}
	return fmt.Sprintf("%q", s.Value)
}

// Operation is one call of one client on one key.
type Operation struct {
	Client int
	Key    string
	Kind   Kind
	// Expected is the state that a CompareAndSwap compares with. New is the state that a Put or a
	// CompareAndSwap writes.
	Expected, New State

	// Outcome and the fields of the answer, which is valid only if Outcome is Done: Found of a Get,
	// and of a CompareAndSwap that did not swap; Swapped of a CompareAndSwap; Existed of a Delete.
	Outcome Outcome
	Found   State
	Swapped bool
	Existed bool

	// Call and Return order the beginnings and endings of all operations of a history; Return is 0
	// until the operation has ended.
	Call, Return int64
	// Began and Ended are for readers of reports: times since the recorder was made.
	Began, Ended time.Duration
}

// String is one line of a report.
func (o Operation) String() string {
	ended := "…"
	if o.Return != 0 {
		ended = o.Ended.Round(time.Microsecond).String()
	}
	return fmt.Sprintf("[%d to %d, %v to %s] client %d: %s", o.Call, o.Return,
		o.Began.Round(time.Microsecond), ended, o.Client, o.describe())
}

// describe describes the call and its answer.
func (o Operation) describe() string {
	call := fmt.Sprintf("%v %s", o.Kind, o.Key)
	switch o.Kind {
	case Put:
		call += fmt.Sprintf(" = %v", o.New)
	case CompareAndSwap:
		call += fmt.Sprintf(" from %v to %v", o.Expected, o.New)
	}
	if o.Outcome != Done {
		return call + ": outcome " + o.Outcome.String()
	}
	switch o.Kind {
	case Get:
		return fmt.Sprintf("%s: %v", call, o.Found)
	case Delete:
		return fmt.Sprintf("%s: existed %v", call, o.Existed)
	case CompareAndSwap:
		if !o.Swapped {
			return fmt.Sprintf("%s: not swapped, found %v", call, o.Found)
		}
		return call + ": swapped"
	default:
		return call + ": done"
	}
}

// writes says whether the operation may change the state.
func (o Operation) writes() bool { return o.Kind != Get }
