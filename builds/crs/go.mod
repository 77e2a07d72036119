module tollgate/builds/crs

go 1.24.0

require github.com/corazawaf/coraza-coreruleset/v4 v4.25.0

require github.com/magefile/mage v1.17.0 // indirect
