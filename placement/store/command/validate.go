package command

import (
	"bytes"
	"fmt"
	"time"

	"github.com/tidemarkdb/tidemark/placement/store/authority"
	"github.com/tidemarkdb/tidemark/placement/store/storepb"
	"github.com/tidemarkdb/tidemark/range/keys"
)

const (
	// MaxBytes bounds an encoded command.
	MaxBytes = 4 << 20
	// MaxOperations bounds the comparisons and operations of a transaction, including nested ones.
	MaxOperations = 16 << 10
	// maxNesting bounds the nesting of transactions.
	maxNesting = 128
	// MaxImported bounds the leases and versions in one step of an import.
	MaxImported = 10_000
	// maxImportSource bounds the name of an import's source, in bytes.
	maxImportSource = 256
	// MaxLeaseMillis keeps the terms of leases within what a time.Duration can count.
	MaxLeaseMillis = uint64((1<<63 - 1) / time.Millisecond)
)

// RangeEndAll as a range end means all keys from the start on.
var RangeEndAll = []byte{0}

// Validate makes the checks that need no state. Its limits hold when a command is proposed, not
// when it is applied: a later version may have other limits.
func Validate(c *storepb.Command) error {
	switch op := c.Op.(type) {
	case *storepb.Command_Txn:
		budget := MaxOperations
		return validateTxn(op.Txn, &budget, 0)
	case *storepb.Command_LeaseGrant:
		if g := op.LeaseGrant; g.GetId() == 0 || g.GetTtlMillis() == 0 ||
			g.GetTtlMillis() > MaxLeaseMillis {
			return fmt.Errorf("%w: a lease needs an id, and a term of 1 to %d ms", ErrInvalid,
				MaxLeaseMillis)
		}
	case *storepb.Command_ChangeMembers:
		return ValidateMembers(op.ChangeMembers.GetNext())
	case *storepb.Command_AuthChange:
		if err := validateAuthChange(op.AuthChange); err != nil {
			return err
		}
	case *storepb.Command_Import:
		return validateImport(op.Import)
	case *storepb.Command_AlarmChange:
		return validateAlarmChange(op.AlarmChange)
	case *storepb.Command_SessionClose:
		if c.Session == 0 {
			return fmt.Errorf("%w: no session to close", ErrInvalid)
		}
	case nil:
		return fmt.Errorf("%w: nothing to do", ErrInvalid)
	}
	if c.Sequence != 0 && c.Session == 0 {
		return fmt.Errorf("%w: a sequence without a session", ErrInvalid)
	}
	return nil
}

func validateTxn(t *storepb.Txn, budget *int, depth int) error {
	if t == nil || depth > maxNesting {
		return fmt.Errorf("%w: transactions nest at most %d deep", ErrInvalid, maxNesting)
	}
	if *budget -= len(t.Compare) + len(t.Success) + len(t.Failure); *budget < 0 {
		return fmt.Errorf("%w: more than %d comparisons and operations", ErrTooLarge, MaxOperations)
	}
	for _, c := range t.Compare {
		if len(c.GetKey()) == 0 {
			return fmt.Errorf("%w: a comparison has no key", ErrInvalid)
		}
	}
	for _, ops := range [][]*storepb.Op{t.Success, t.Failure} {
		for _, op := range ops {
			var key []byte
			switch op := op.GetOp().(type) {
			case *storepb.Op_Range:
				key = op.Range.GetKey()
			case *storepb.Op_Put:
				key = op.Put.GetKey()
				if (op.Put.GetIgnoreValue() && len(op.Put.Value) > 0) ||
					(op.Put.GetIgnoreLease() && op.Put.Lease != 0) {
					return fmt.Errorf("%w: key %s both keeps and replaces its value or lease",
						ErrInvalid, keys.Pretty(key))
				}
			case *storepb.Op_DeleteRange:
				key = op.DeleteRange.GetKey()
			case *storepb.Op_Txn:
				if err := validateTxn(op.Txn, budget, depth+1); err != nil {
					return err
				}
				continue
			default:
				return fmt.Errorf("%w: an operation says nothing to do", ErrInvalid)
			}
			if len(key) == 0 {
				return fmt.Errorf("%w: an operation has no key", ErrInvalid)
			}
		}
		if err := checkOverlap(ops); err != nil {
			return err
		}
	}
	return nil
}

// Span returns the span of a key and a range end. If the end is at or below the key, the span is
// empty.
func Span(key, rangeEnd []byte) keys.Span {
	switch {
	case len(rangeEnd) == 0:
		return keys.Point(key)
	case bytes.Equal(rangeEnd, RangeEndAll):
		return keys.Span{Start: key}
	}
	return keys.Span{Start: key, End: rangeEnd}
}

// validateAuthChange makes the checks that need no state.
func validateAuthChange(c *storepb.AuthChange) error {
	switch c := c.GetChange().(type) {
	case nil:
		return fmt.Errorf("%w: no change of users or roles", ErrInvalid)
	case *storepb.AuthChange_Enable:
		if len(c.Enable.GetKey()) < authority.KeyBytes {
			return fmt.Errorf("%w: a key for tokens has at least %d bytes", ErrInvalid,
				authority.KeyBytes)
		}
	}
	return nil
}

func validateImport(m *storepb.Import) error {
	switch {
	case m.GetId() == 0, m.Step == 0 && !m.Abandon:
		return fmt.Errorf("%w: an import needs an id, and counts its steps from 1 on", ErrInvalid)
	case m.Step == 1 && (m.Revision == 0 || int64(m.Revision) < 0):
		return fmt.Errorf("%w: an import of revision %d", ErrInvalid, m.Revision)
	case len(m.Source) > maxImportSource:
		return fmt.Errorf("%w: the name of what is imported has more than %d bytes", ErrTooLarge,
			maxImportSource)
	case m.Enable != nil && (!m.End || len(m.Enable.Key) < authority.KeyBytes):
		return fmt.Errorf("%w: authentication is enabled by the last step of an import, with a key of "+
			"at least %d bytes", ErrInvalid, authority.KeyBytes)
	case len(m.Leases)+len(m.Versions) > MaxImported:
		return fmt.Errorf("%w: more than %d leases and keys in one step of an import", ErrTooLarge,
			MaxImported)
	}
	return nil
}

func validateAlarmChange(c *storepb.AlarmChange) error {
	if t := c.GetAlarm().GetType(); t != storepb.Alarm_NO_SPACE && t != storepb.Alarm_CORRUPT {
		return fmt.Errorf("%w: an alarm of type %d", ErrInvalid, t)
	}
	return nil
}

// ReadOnly reports whether a transaction, with all nested ones, has no writes.
func ReadOnly(t *storepb.Txn) bool {
	return EachOp(t, func(op *storepb.Op) bool {
		switch op.GetOp().(type) {
		case *storepb.Op_Range, *storepb.Op_Txn:
			return true
		}
		return false
	})
}

// EachOp visits the operations of a transaction, on both branches, and those of the transactions
// that are nested in it, until visit returns false. It reports whether all were visited.
func EachOp(t *storepb.Txn, visit func(*storepb.Op) bool) bool {
	for _, ops := range [...][]*storepb.Op{t.GetSuccess(), t.GetFailure()} {
		for _, op := range ops {
			if !visit(op) || op.GetTxn() != nil && !EachOp(op.GetTxn(), visit) {
				return false
			}
		}
	}
	return true
}

// PrefixRange returns the key and range end for all keys with a prefix.
func PrefixRange(prefix []byte) (key, rangeEnd []byte) {
	end := keys.PrefixEnd(prefix)
	if end == nil {
		end = RangeEndAll
	}
	return prefix, end
}
