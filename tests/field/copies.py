"""Copies of the cases of this folder, with the addresses of their small channels and indexes."""

import re
import shutil


def copy_case(case, folder, addresses, description):
    """Copy a case's repository without its description, with addresses in place of their words."""
    shutil.copytree(case, folder, ignore=shutil.ignore_patterns(description))
    for file in folder.rglob("*.*"):
        if file.is_file():
            text = file.read_text()
            for word, address in addresses.items():
                text = re.sub(rf"\b{word}\b", address, text)
            file.write_text(text)
