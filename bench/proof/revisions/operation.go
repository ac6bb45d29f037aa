package revisions

import (
	"fmt"
	"strings"
	"time"
)

// Target is the field of a key that a comparison looks at.
type Target uint8

const (
	// Value is the value of a key. For an absent key every comparison with a value is false.
	Value Target = iota
	// Create, Mod and Version are numbers; 0 for an absent key.
	Create
	Mod
	Version
)

func (t Target) String() string {
	return [...]string{"value", "create revision", "mod revision", "version"}[t]
}

// Compare is a comparison of a transaction: a key has, or does not have, a value or number.
type Compare struct {
	Key    string
	Target Target
	// Not: the value or number differs.
	Not    bool
	Value  string
	Number int64
}

func (c Compare) String() string {
	relation, want := "=", fmt.Sprint(c.Number)
	if c.Not {
		relation = "!="
	}
	if c.Target == Value {
		want = c.Value
	}
	return fmt.Sprintf("%v of %s %s %s", c.Target, c.Key, relation, want)
}

// Kind is the kind of an action.
type Kind uint8

const (
	// Get reads a key, or with End all keys from Key up to End.
	Get Kind = iota
	// Put writes Value. Its answer has the previous pair.
	Put
	// Delete deletes a key, or with End all keys from Key up to End. Its answer has the previous
	// pairs.
	Delete
)

// Action is an operation of a transaction, or a single call.
type Action struct {
	Kind     Kind
	Key, End string
	Value    string
}

func (a Action) String() string {
	text := [...]string{"get ", "put ", "delete "}[a.Kind] + a.Key
	if a.End != "" {
		text += " to " + a.End
	}
	if a.Kind == Put {
		text += " = " + a.Value
	}
	return text
}

// covers says whether the action reads or writes a key.
func (a Action) covers(key string) bool {
	if a.End == "" {
		return key == a.Key
	}
	return a.Key <= key && key < a.End
}

// Pair is a key as an operation found it.
type Pair struct {
	Key, Value           string
	Create, Mod, Version int64
}

func (p Pair) String() string {
	return fmt.Sprintf("%s = %s (created %d, modified %d, version %d)", p.Key, p.Value, p.Create,
		p.Mod, p.Version)
}

// Outcome is what the client knows of an operation's effect.
type Outcome uint8

const (
	// Unknown: the operation has not ended, or ended without the client learning whether it took
	// effect.
	Unknown Outcome = iota
	// Done: the answer is recorded.
	Done
	// Refused: the operation certainly had no effect and never will have one.
	Refused
)

// Operation is one call of one client: a transaction. A single get, put or delete is a transaction
// without comparisons.
type Operation struct {
	Client int
	// Serializable: the operation only reads, and does not ask for a quorum.
	Serializable bool
	Compares     []Compare
	Then, Else   []Action

	// The answer is valid only if Outcome is Done: whether all comparisons were true, the revision
	// in the header, and the pairs that each action of the branch found.
	Outcome   Outcome
	Succeeded bool
	Revision  int64
	Found     [][]Pair

	// Call and Return order the beginnings and endings of all operations of a history; Return is 0
	// until the operation has ended.
	Call, Return int64
	// Began and Ended are for readers of reports: times since the recorder was made.
	Began, Ended time.Duration

	// at is the revision at which an operation of unknown outcome took effect; 0 if unknown.
	at int64
}

// reads says whether no branch writes.
func (o *Operation) reads() bool {
	for _, branch := range [][]Action{o.Then, o.Else} {
		for _, a := range branch {
			if a.Kind != Get {
				return false
			}
		}
	}
	return true
}

// branch returns the actions of the branch that was taken.
func (o *Operation) branch() []Action {
	if o.Succeeded {
		return o.Then
	}
	return o.Else
}

// String is one line of a report.
func (o *Operation) String() string {
	ended := "…"
	if o.Return != 0 {
		ended = o.Ended.Round(time.Microsecond).String()
	}
	return fmt.Sprintf("[%d to %d, %v to %s] client %d: %s", o.Call, o.Return,
		o.Began.Round(time.Microsecond), ended, o.Client, o.describe())
}

func list[T fmt.Stringer](all []T) string {
	parts := make([]string, len(all))
	for i, x := range all {
		parts[i] = x.String()
	}
	return strings.Join(parts, ", ")
}

// describe describes the call and its answer.
func (o *Operation) describe() string {
	call := list(o.Then)
	if len(o.Compares) > 0 {
		call = fmt.Sprintf("if %s then %s else %s", list(o.Compares), call, list(o.Else))
	}
	if o.Serializable {
		call += " (serializable)"
	}
	switch o.Outcome {
	case Unknown:
		if o.at > 0 {
			return fmt.Sprintf("%s: not told; seen at revision %d", call, o.at)
		}
		return call + ": not told"
	case Refused:
		return call + ": refused"
	}
	found := make([]string, len(o.Found))
	for i, pairs := range o.Found {
		found[i] = "[" + list(pairs) + "]"
	}
	if len(o.Compares) > 0 {
		call += fmt.Sprintf(": %v", o.Succeeded)
	}
	return fmt.Sprintf("%s: at revision %d %s", call, o.Revision, strings.Join(found, " "))
}
