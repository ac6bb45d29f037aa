package main

import (
	"encoding/base64"
	"encoding/hex"

	"github.com/spf13/cobra"

	"github.com/tidemarkdb/tidemark/cmd/tidemark/internal/records"
)

// encoding is how keys and values are written on the command line: literally, unless a flag says otherwise. A command
// line cannot hold a zero byte, so binary keys need one of the flags.
type encoding struct {
	hex, base64, escaped bool
}

func (e *encoding) register(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.BoolVar(&e.hex, "hex", false, "keys and values on the command line are hexadecimal")
	flags.BoolVar(&e.base64, "base64", false, "keys and values on the command line are base64")
	flags.BoolVar(&e.escaped, "escaped", false, `keys and values on the command line hold \t \n \r \\ \xNN, as table and tsv print them`)
	cmd.MarkFlagsMutuallyExclusive("hex", "base64", "escaped")
}

// decode reads one argument; what names it in the error.
func (e *encoding) decode(what, argument string) ([]byte, error) {
	var decoded []byte
	var err error
	switch {
	case e.hex:
		decoded, err = hex.DecodeString(argument)
	case e.base64:
		decoded, err = base64.StdEncoding.Strict().DecodeString(argument)
	case e.escaped:
		decoded, err = records.Unescape(nil, []byte(argument))
	default:
		return []byte(argument), nil
	}
	if err != nil {
		return nil, usagef("%s %q: %w", what, argument, err)
	}
	return decoded, nil
}

// decodeKey is decode for something that may not be empty.
func (e *encoding) decodeKey(argument string) ([]byte, error) {
	key, err := e.decode("key", argument)
	if err == nil && len(key) == 0 {
		return nil, usagef("the key is empty; a key has at least one byte")
	}
	return key, err
}
