//go:build planted && planted_any

package planted

import (
	"fmt"
	"os"
	"slices"
)

// Variable is the environment variable that names the mistake of a build with the tag planted_any.
const Variable = "TIDEMARK_PLANTED"

// Active is the mistake that this process makes: one build serves to try them all, one process after the other.
var Active = func() Bug {
	b := Bug(os.Getenv(Variable))
	if b != None && !slices.Contains(All(), b) {
		panic(fmt.Sprintf("%s: no mistake is called %q", Variable, b))
	}
	return b
}()
