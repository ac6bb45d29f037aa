package store

import (
	"bytes"
	"errors"
	"fmt"
	"slices"

	"github.com/tidemarkdb/tidemark/placement/store/lease"
	"github.com/tidemarkdb/tidemark/placement/store/storepb"
	"github.com/tidemarkdb/tidemark/range/keys"
)

const (
	// The first byte of a log entry is its format. A member refuses formats that it does not know,
	// and stops applying, rather than applying half of what a newer member meant. A command has the
	// lowest format that says what it means.
	commandFormat = 1
	// etcdCompareFormat is for commands that compare over ranges. A comparison over a range without
	// keys is made as etcd makes it (see compare); in the format before it always held, and what is
	// in a log of that format keeps its meaning.
	etcdCompareFormat = 2
	// membersFormat is for commands that change the core's members.
	membersFormat = 3
	// optionsFormat is for ranges that are ordered, filtered or at a negative revision, and for
	// leases whose id is negative, which the formats before it refuse.
	optionsFormat = 4

	// checkpointFormat is for checkpoints of leases.
	checkpointFormat = 5

	// groupFormat is for an entry that has several commands, each with its format and its length in
	// front (batch.go).
	groupFormat = 6

	// authFormat is for changes of users and roles, and for commands of a user: members that know no
	// users would do them without a check. A command of a client that is not authenticated has the
	// format of what it does. Before the log enables authentication, such members do right by it, and
	// they stop there.
	authFormat = 7

	// importFormat is for the steps of imports.
	importFormat = 8

	// alarmFormat is for alarms, and for the end of an import that enables authentication.
	alarmFormat = 9

	// compactFormat is for compactions that do not remove all at once.
	compactFormat = 10

	// newestFormat is the highest that this version knows. Those above LeastFormat are used when all
	// members are known to know them (formats.go).
	newestFormat = compactFormat

	// MaxCommandBytes is the greatest encoded command.
	MaxCommandBytes = 4 << 20
	// MaxOperations is how many comparisons and operations a transaction may have, nested ones
	// included.
	MaxOperations = 16 << 10
	// maxNesting is how deep transactions may be nested.
	maxNesting = 128
)

// rangeEndAll as a range end means: every key from the start on.
var rangeEndAll = []byte{0}

// Put is an operation that writes a key.
func Put(key, value []byte) *storepb.Op {
	return &storepb.Op{Op: &storepb.Op_Put{Put: &storepb.Put{Key: key, Value: value}}}
}

// PutLeased is an operation that writes a key which ends with its lease.
func PutLeased(key, value []byte, lease int64) *storepb.Op {
	return &storepb.Op{Op: &storepb.Op_Put{Put: &storepb.Put{Key: key, Value: value, Lease: lease}}}
}

// Delete is an operation that deletes one key.
func Delete(key []byte) *storepb.Op {
	return &storepb.Op{Op: &storepb.Op_DeleteRange{DeleteRange: &storepb.DeleteRange{Key: key}}}
}

// PrefixRange is the key and range end that name all keys with a prefix.
func PrefixRange(prefix []byte) (key, rangeEnd []byte) {
	end := keys.PrefixEnd(prefix)
	if end == nil {
		end = rangeEndAll
	}
	return prefix, end
}

// Absent holds if the key does not exist.
func Absent(key []byte) *storepb.Compare { return ModifiedAt(key, 0) }

// ModifiedAt holds if the key was last written at the revision; 0: if it does not exist.
func ModifiedAt(key []byte, revision uint64) *storepb.Compare {
	return &storepb.Compare{Key: key, Target: storepb.Compare_MOD, Number: int64(revision)}
}

// If is a command that does one list of operations if all comparisons hold, and the other if not.
func If(compare []*storepb.Compare, success, failure []*storepb.Op) *storepb.Command {
	return &storepb.Command{Op: &storepb.Command_Txn{
		Txn: &storepb.Txn{Compare: compare, Success: success, Failure: failure}}}
}

// Compact is a command that makes revisions below the given one unreadable.
func Compact(revision uint64) *storepb.Command {
	return &storepb.Command{
		Op: &storepb.Command_Compact{Compact: &storepb.Compact{Revision: revision}}}
}

// Grant is a command that makes a lease.
func Grant(id int64, ttlMillis uint64) *storepb.Command {
	return &storepb.Command{Op: &storepb.Command_LeaseGrant{
		LeaseGrant: &storepb.LeaseGrant{Id: id, TtlMillis: ttlMillis}}}
}

// Revoke is a command that ends a lease and deletes its keys.
func Revoke(id int64) *storepb.Command {
	return &storepb.Command{
		Op: &storepb.Command_LeaseRevoke{LeaseRevoke: &storepb.LeaseRevoke{Id: id}}}
}

func encodeCommand(c *storepb.Command) ([]byte, error) {
	data := make([]byte, 1+c.SizeVT())
	data[0] = formatOf(c)
	if _, err := c.MarshalToSizedBufferVT(data[1:]); err != nil {
		return nil, fmt.Errorf("encode command: %w", err)
	}
	return data, nil
}

// formatOf is the lowest format that says what a command means.
func formatOf(c *storepb.Command) byte {
	if c.GetAuth().GetUser() != "" {
		return authFormat
	}
	switch op := c.Op.(type) {
	case *storepb.Command_Txn:
		return formatOfTxn(op.Txn)
	case *storepb.Command_LeaseGrant:
		if op.LeaseGrant.GetId() < 0 {
			return optionsFormat
		}
	case *storepb.Command_ChangeMembers:
		return membersFormat
	case *storepb.Command_LeaseCheckpoint:
		return checkpointFormat
	case *storepb.Command_AuthChange:
		return authFormat
	case *storepb.Command_Import:
		if op.Import.GetEnable() != nil {
			return alarmFormat
		}
		return importFormat
	case *storepb.Command_Compact:
		if op.Compact.GetEvents() > 0 || op.Compact.GetResume() {
			return compactFormat
		}
	case *storepb.Command_AlarmChange:
		return alarmFormat
	}
	return commandFormat
}

func formatOfTxn(t *storepb.Txn) byte {
	format := byte(commandFormat)
	if slices.ContainsFunc(t.GetCompare(), comparesRange) {
		format = etcdCompareFormat
	}
	for _, ops := range [][]*storepb.Op{t.GetSuccess(), t.GetFailure()} {
		for _, op := range ops {
			switch op := op.GetOp().(type) {
			case *storepb.Op_Range:
				if hasOptions(op.Range) {
					return optionsFormat
				}
			case *storepb.Op_Txn:
				format = max(format, formatOfTxn(op.Txn))
			}
		}
	}
	return format
}

func comparesRange(c *storepb.Compare) bool { return len(c.GetRangeEnd()) > 0 }

// hasOptions says whether a range asks for what the first formats do not know.
func hasOptions(q *storepb.Range) bool {
	return q.GetSortOrder() != 0 || q.GetSortTarget() != 0 || q.GetMinModRevision() != 0 ||
		q.GetMaxModRevision() != 0 || q.GetMinCreateRevision() != 0 ||
		q.GetMaxCreateRevision() != 0 || int64(q.GetRevision()) < 0
}

// ReadOnly says whether a transaction, and all that are nested in it, writes nothing.
func ReadOnly(t *storepb.Txn) bool {
	for _, ops := range [][]*storepb.Op{t.GetSuccess(), t.GetFailure()} {
		for _, op := range ops {
			switch op := op.GetOp().(type) {
			case *storepb.Op_Range:
			case *storepb.Op_Txn:
				if !ReadOnly(op.Txn) {
					return false
				}
			default:
				return false
			}
		}
	}
	return true
}

// decodeCommand copies what it keeps of data.
func decodeCommand(data []byte) (c *storepb.Command, format byte, err error) {
	if len(data) == 0 {
		return nil, 0, errors.New("command is empty")
	}
	if format = data[0]; format < commandFormat || format > newestFormat {
		return nil, 0, fmt.Errorf(
			"command has format %d, this version knows %d to %d: a newer version wrote it",
			format, commandFormat, newestFormat)
	}
	if err := checkNesting(data[1:]); err != nil {
		return nil, 0, fmt.Errorf("command is malformed: %w", err)
	}
	c = &storepb.Command{}
	if err := c.UnmarshalVT(data[1:]); err != nil {
		return nil, 0, fmt.Errorf("command is malformed: %w", err)
	}
	if c.Op == nil {
		return nil, 0, errors.New("command says nothing to do: a newer version may have written it")
	}
	return c, format, nil
}

// validateCommand is the part of checking that needs no state. Its limits hold for what is
// proposed, not for what is applied: a later version may have others.
func validateCommand(c *storepb.Command) error {
	switch op := c.Op.(type) {
	case *storepb.Command_Txn:
		budget := MaxOperations
		return validateTxn(op.Txn, &budget, 0)
	case *storepb.Command_LeaseGrant:
		if g := op.LeaseGrant; g.GetId() == 0 || g.GetTtlMillis() == 0 ||
			g.GetTtlMillis() > lease.MaxTermMillis {
			return fmt.Errorf("%w: a lease needs an id, and a term of 1 to %d ms", ErrInvalid,
				lease.MaxTermMillis)
		}
	case *storepb.Command_ChangeMembers:
		return validateMembers(op.ChangeMembers.GetNext())
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

// rangeSpan is the span that a key and a range end name. An end at or below the key names nothing.
func rangeSpan(key, rangeEnd []byte) keys.Span {
	switch {
	case len(rangeEnd) == 0:
		return keys.Point(key)
	case bytes.Equal(rangeEnd, rangeEndAll):
		return keys.Span{Start: key}
	}
	return keys.Span{Start: key, End: rangeEnd}
}
