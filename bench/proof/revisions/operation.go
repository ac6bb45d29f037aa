package revisions

import (
	"fmt"
	"strings"
	"time"
)

// Target is what a comparison looks at.
type Target uint8

const (
	// Value is the value of a key; a key that is absent has none, and no comparison is true.
	Value Target = iota
	// Create, Mod and Version are numbers, 0 of a key that is absent.
	Create
	Mod
	Version
)

func (t Target) String() string {
	return [...]string{"value", "create revision", "mod revision", "version"}[t]
}

// Compare is a comparison of a transaction: that a key has, or has not, a value or number.
type Compare struct {
	Key    string
	Target Target
	// Not: that it differs.
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

// Kind is what an action does.
type Kind uint8

const (
	// Get reads a key; with End all keys from Key up to it.
	Get Kind = iota
	// Put writes Value, and answers with the pair before.
	Put
	// Delete deletes a key, or with End all up to it, and answers with the pairs before.
	Delete
)

// Action is an operation of a transaction, or a call of its own.
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

// covers says whether the action concerns a key.
func (a Action) covers(key string) bool {
	if a.End == "" {
		return key == a.Key
	}
	return a.Key <= key && key < a.End
}

// Pair is a key as it was found.
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
	// Unknown: it has not ended, or ended without the client learning whether it took effect.
	Unknown Outcome = iota
	// Done: the answer is recorded.
	Done
	// Refused: it certainly had no effect and never will.
	Refused
)

// Operation is one call of one client: a transaction, of which a get, put or delete by itself is
// one without comparisons.
type Operation struct {
	Client int
	// Serializable: the call only reads, and asked for no quorum.
	Serializable bool
	Compares     []Compare
	Then, Else   []Action

	// The answer, valid with Done only: whether all comparisons were true, the revision in the
	// header, and for each action of the branch the pairs that it found.
	Outcome   Outcome
	Succeeded bool
	Revision  int64
	Found     [][]Pair

	// Call and Return order the beginnings and endings of all operations of a history; Return is 0
	// until the operation has ended.
	Call, Return int64
	// Began and Ended are for people: times since the recorder was made.
	Began, Ended time.Duration

	// at is the revision of the effect of an operation of unknown outcome; 0 if that is not known.
	at int64
}

// reads says whether neither branch writes.
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

// branch is what was done.
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

// describe is the call and its answer in words.
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
