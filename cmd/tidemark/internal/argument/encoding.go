package argument

import (
	"encoding/base64"
	"encoding/hex"

	"github.com/spf13/cobra"

	"github.com/tidemarkdb/tidemark/cmd/tidemark/internal/exit"
	"github.com/tidemarkdb/tidemark/cmd/tidemark/internal/records"
)

// Encoding is the encoding of keys and values on the command line: literal without a flag. A
// command line cannot contain a zero byte, so binary keys need one of the flags.
type Encoding struct {
	Hex, Base64, Escaped bool
}

// Register adds the flags.
func (e *Encoding) Register(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.BoolVar(&e.Hex, "hex", false, "keys and values on the command line are hexadecimal")
	flags.BoolVar(&e.Base64, "base64", false, "keys and values on the command line are base64")
	flags.BoolVar(&e.Escaped, "escaped", false,
		`keys and values on the command line hold \t \n \r \\ \xNN, as table and tsv print them`)
	cmd.MarkFlagsMutuallyExclusive("hex", "base64", "escaped")
}

// Decode reads one argument; what names it in the error.
func (e *Encoding) Decode(what, argument string) ([]byte, error) {
	var decoded []byte
	var err error
	switch {
	case e.Hex:
		decoded, err = hex.DecodeString(argument)
	case e.Base64:
		decoded, err = base64.StdEncoding.Strict().DecodeString(argument)
	case e.Escaped:
		decoded, err = records.Unescape(nil, []byte(argument))
	default:
		return []byte(argument), nil
	}
	if err != nil {
		return nil, exit.Usagef("%s %q: %w", what, argument, err)
	}
	return decoded, nil
}

// DecodeKey does the same as Decode for a key, which must not be empty.
func (e *Encoding) DecodeKey(argument string) ([]byte, error) {
	key, err := e.Decode("key", argument)
	if err == nil && len(key) == 0 {
		return nil, exit.Usagef("the key is empty; a key has at least one byte")
	}
	return key, err
}
