#include "check.h"

int main(int argc, char** argv) { return envpack::test::RunCases(argc, argv); }
