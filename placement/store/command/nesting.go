package command

import (
	"fmt"

	"google.golang.org/protobuf/encoding/protowire"
)

// maxDecodedNesting bounds the nesting of transactions in a decoded command; it exceeds the nesting
// of all proposed commands. Decoding recurses, and a stack that overflows ends the process.
const maxDecodedNesting = 4 * maxNesting

// The fields through which transactions nest: Command.txn, Txn.success, Txn.failure and Op.txn.
const (
	fieldCommandTxn = 6
	fieldTxnSuccess = 2
	fieldTxnFailure = 3
	fieldOpTxn      = 4
)

// checkNesting refuses an encoded command whose transactions are nested too deep. It does not
// recurse, and leaves other malformed data to the decoder.
func checkNesting(command []byte) error {
	type message struct {
		data  []byte
		depth int // of the transaction that it is, or is in; 0 for the command
		txn   bool
	}
	stack := []message{{data: command}}
	for len(stack) > 0 {
		m := stack[len(stack)-1]
		stack = stack[:len(stack)-1]
		for rest := m.data; len(rest) > 0; {
			field, kind, n := protowire.ConsumeTag(rest)
			if n < 0 {
				break
			}
			rest = rest[n:]
			if n = protowire.ConsumeFieldValue(field, kind, rest); n < 0 {
				break
			}
			value := rest[:n]
			rest = rest[n:]
			if kind != protowire.BytesType {
				continue
			}
			inner := message{depth: m.depth}
			switch {
			case m.depth == 0 && field == fieldCommandTxn, m.depth > 0 && !m.txn && field == fieldOpTxn:
				inner.depth, inner.txn = m.depth+1, true
			case m.txn && (field == fieldTxnSuccess || field == fieldTxnFailure):
			default:
				continue
			}
			if inner.depth > maxDecodedNesting {
				return fmt.Errorf("transactions are nested more than %d deep", maxDecodedNesting)
			}
			if inner.data, n = protowire.ConsumeBytes(value); n >= 0 {
				stack = append(stack, inner)
			}
		}
	}
	return nil
}
