package keys

import (
	"fmt"
	"strconv"
)

// prettyLimit is the number of bytes of a key that Pretty prints.
const prettyLimit = 128

// Pretty makes any key, user or internal, printable: quoted, ASCII only, bytes that do not print as
// \x.. A long key is cut and its length is given.
func Pretty(key []byte) string {
	if len(key) > prettyLimit {
		return strconv.QuoteToASCII(string(key[:prettyLimit])) + "... (" + strconv.Itoa(len(key)) +
			" bytes)"
	}
	return strconv.QuoteToASCII(string(key))
}

// PrettyState makes a state key printable, with its table by name.
func PrettyState(stateKey []byte) string {
	if len(stateKey) > 0 && stateKey[0] == tableData {
		if key, ts, err := DecodeVersioned(stateKey); err == nil {
			if ts.IsZero() {
				return "data " + Pretty(key)
			}
			return "data " + Pretty(key) + " at " + ts.String()
		}
	}
	if len(stateKey) > 0 && stateKey[0] == tableLocal {
		if id, suffix, err := DecodeLocalKey(stateKey); err == nil {
			return fmt.Sprintf("local %s %s", id, Pretty([]byte(suffix)))
		}
	}
	if len(stateKey) > 0 && stateKey[0] == tableAnchor {
		if key, suffix, err := DecodeAnchorKey(stateKey); err == nil {
			return "anchor " + Pretty(key) + " " + Pretty([]byte(suffix))
		}
	}
	return "raw " + Pretty(stateKey)
}
